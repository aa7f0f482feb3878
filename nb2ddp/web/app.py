"""The page, made with Gradio. The only module that knows Gradio, which is imported late and sends nothing home."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nb2ddp.errors import WebError
from nb2ddp.options import Setting, settings
from nb2ddp.rendering import render
from nb2ddp.web import limits
from nb2ddp.web.conversion import Answer, Upload, converted

_TITLE = "Notebook to DDP script"
_ABOUT = f"""\
# {_TITLE}

Give a single-GPU training notebook; get the script that trains it on several GPUs, and what was changed and why.
Nothing of the notebook is executed, and nothing is kept: a dropped file is deleted once it is read.
"""
_SWEEP_SECONDS = 60.0


@contextmanager
def served(host: str, port: int | None, *, browser: bool) -> Iterator[str]:
    """Serve the page while the context is open, and give its address.

    Raises:
        WebError: Gradio is not installed, or the port cannot be had.
    """
    with tempfile.TemporaryDirectory(prefix="nb2ddp-web-", ignore_cleanup_errors=True) as folder:
        gr = _gradio(folder)
        page = _page(gr)
        ended = threading.Event()
        sweeper = threading.Thread(target=_sweep, args=(Path(folder), ended), daemon=True)
        try:
            _, address, _ = page.launch(
                server_name=host,
                server_port=port,
                inbrowser=browser,
                theme=_theme(gr),
                css=render("web/page.css.j2"),
                head=f"<script>{render('web/page.js.j2')}</script>",
                max_file_size=limits.MOST_BYTES,
                state_session_capacity=50,
                prevent_thread_lock=True,
                quiet=True,
                share=False,
                ssr_mode=False,
                pwa=False,
                mcp_server=False,
                run_history=False,
                enable_monitoring=False,
                footer_links=[],
            )
        except OSError as error:
            raise WebError(f"the page cannot be served at {host}, port {port or 'any'}: {error}") from None
        sweeper.start()
        try:
            yield str(address)
        finally:
            ended.set()
            with suppress(Exception):
                page.close(verbose=False)


def _gradio(folder: str) -> Any:
    """Import Gradio: without analytics, with its files in ``folder``, and none of the machine's shown."""
    os.environ |= {
        "GRADIO_ANALYTICS_ENABLED": "False",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "GRADIO_TEMP_DIR": folder,
        "GRADIO_ALLOWED_PATHS": "",
    }
    try:
        import gradio
    except ModuleNotFoundError as error:
        if error.name != "gradio":
            raise
        raise WebError("the page needs Gradio: pip install 'nb2ddp[web]'") from None
    return gradio


def _theme(gr: Any) -> Any:
    """Return a theme with fonts of the system, since nothing is loaded from elsewhere, and readable greys."""
    theme = gr.themes.Default(
        primary_hue="blue",
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "Consolas", "monospace"],
    )
    return theme.set(
        body_text_color_subdued="#5a6169",
        body_text_color_subdued_dark="#a3abb4",
        block_info_text_color="#5a6169",
        block_info_text_color_dark="#a3abb4",
        input_placeholder_color="#6a717a",
        input_placeholder_color_dark="#a3abb4",
        button_primary_background_fill="#0b57b7",
        button_primary_background_fill_hover="#09468f",
        button_primary_background_fill_dark="#0b57b7",
        button_primary_background_fill_hover_dark="#2f74cf",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark="#ffffff",
    )


def _page(gr: Any) -> Any:
    with gr.Blocks(title=_TITLE, analytics_enabled=False, fill_width=True) as page:
        gr.Markdown(_ABOUT)
        dropped = gr.State(None, time_to_live=limits.KEEP_SECONDS)
        with gr.Row():
            file = gr.File(
                label="Notebook, or .py with # %% cells",
                file_types=[".ipynb", ".py"],
                height=170,
                elem_id="file",
            )
            with gr.Column():
                link = gr.Textbox(
                    label="Or paste a link",
                    placeholder="https://github.com/OWNER/REPO/blob/main/finetune.ipynb",
                    info="A page of GitHub, Gist, Colab, Hugging Face or GitLab, or a file",
                    max_length=2000,
                )
                button = gr.Button("Convert", variant="primary")
        with gr.Accordion("Options", open=False, elem_id="options"):
            options = _options(gr)
        result = gr.HTML(min_height=120, elem_id="result")
        events = dict(
            outputs=[dropped, file, link, result],
            api_visibility="private",
            concurrency_limit=limits.AT_ONCE,
            concurrency_id="convert",
            show_progress_on=result,
            scroll_to_output=True,
        )
        file.upload(_converts_file(gr), [file, *options], **events)
        gr.on([button.click, link.submit], _converts(gr), [dropped, link, *options], **events)
        file.clear(lambda: None, outputs=dropped, api_visibility="private", queue=False)
    page.queue(max_size=limits.WAITING, api_open=False)
    return page


def _options(gr: Any) -> list[Any]:
    """Make a field for each option of a conversion."""
    fields = []
    parts = list(settings())
    for start in range(0, len(parts), 3):
        with gr.Row():
            fields += [_field(gr, setting) for setting in parts[start : start + 3]]
    return fields


def _field(gr: Any, setting: Setting) -> Any:
    about = {
        "label": setting.name.replace("_", " "),
        "info": setting.help,
        "value": setting.default,
        "min_width": 240,
    }
    if setting.choices:
        return gr.Radio(list(setting.choices), **about)
    if setting.type is bool:
        return gr.Checkbox(**about)
    if setting.type in (int, float):
        return gr.Number(minimum=setting.minimum, precision=0 if setting.type is int else None, **about)
    return gr.Textbox(placeholder=setting.otherwise, max_length=200, **about)


def _converts_file(gr: Any) -> Callable[..., Sequence[Any]]:
    """Return the handler of a dropped file: it is read, deleted and converted; a pasted link goes."""

    def handle(path: str, *values: Any) -> Sequence[Any]:
        upload = Upload(Path(path).name, Path(path).read_bytes())
        Path(path).unlink(missing_ok=True)
        return upload, gr.skip(), "", _shown(converted(upload, _named(values)))

    return handle


def _converts(gr: Any) -> Callable[..., Sequence[Any]]:
    """Return the handler of the button: a link goes before a file that was dropped earlier."""

    def handle(upload: Upload | None, link: str, *values: Any) -> Sequence[Any]:
        if link and link.strip():
            return None, None, gr.skip(), _shown(converted(link, _named(values)))
        if upload is None:
            answer = Answer("failed", "Drop a notebook, or paste a link, first.")
        else:
            answer = converted(upload, _named(values))
        return gr.skip(), gr.skip(), gr.skip(), _shown(answer)

    return handle


def _named(values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip((setting.name for setting in settings()), values, strict=True))


def _shown(answer: Answer) -> str:
    folder = answer.name.removesuffix(".zip")
    stem = folder.removesuffix("_ddp") or "notebook"
    return render("web/result.html.j2", answer=answer, folder=folder, stem=stem)


def _sweep(folder: Path, ended: threading.Event) -> None:
    """Delete what uploads have left behind: files that were never converted, and empty ones of Gradio's."""
    while not ended.wait(_SWEEP_SECONDS):
        for path in list(folder.rglob("*")):
            with suppress(OSError):
                if path.is_file() and time.time() - path.stat().st_mtime > limits.KEEP_SECONDS:
                    path.unlink()
