"""The page, made with Gradio. The only module that knows Gradio, which is imported late and sends nothing home."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from nb2ddp.errors import NotebookError, WebError, install_command
from nb2ddp.options import Setting, settings
from nb2ddp.rendering import render
from nb2ddp.web import limits
from nb2ddp.web.body_limit import BodyLimit
from nb2ddp.web.conversion import Answer, converted
from nb2ddp.web.uploads import Uploads

_TITLE = "Notebook to DDP script"
_ABOUT = f"""\
# {_TITLE}

Give a single-GPU training notebook; get the script that trains it on several GPUs, and what was changed and why.
Nothing of the notebook is executed, and nothing is kept on the server's disk. Its memory holds the notebook and the
result until you leave the page, for {limits.KEEP_SECONDS / 60:.0f} minutes at most.
"""


@contextmanager
def served(host: str, port: int | None, *, browser: bool) -> Iterator[str]:
    """Serve the page while the context is open, and give its address.

    Raises:
        WebError: Gradio is not installed, or the port cannot be had.
    """
    with tempfile.TemporaryDirectory(prefix="nb2ddp-web-", ignore_cleanup_errors=True) as folder:
        gr = _gradio(folder)
        uploads = Uploads(Path(folder))
        page = _page(gr, uploads)
        ended = threading.Event()
        sweeper = threading.Thread(target=_sweep, args=(page, uploads, ended), daemon=True)
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
                app_kwargs={"middleware": [(BodyLimit, (), {})]},
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
        raise WebError(f"the page needs Gradio: {install_command('web')}") from None
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


def _page(gr: Any, uploads: Uploads) -> Any:
    with _blocks(gr, uploads)(title=_TITLE, analytics_enabled=False, fill_width=True) as page:
        gr.Markdown(_ABOUT)
        with gr.Row():
            file = gr.File(
                label="Notebook (.ipynb), or .py with cells",
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
        at_once = {"api_visibility": "private", "queue": False}
        queued = {
            "inputs": [link, *options],
            "outputs": [file, result],
            "api_visibility": "private",
            "concurrency_limit": limits.AT_ONCE,
            "concurrency_id": "convert",
            "show_progress_on": result,
            "scroll_to_output": True,
        }
        converts = _converts(gr, uploads)
        # taken before it waits in the queue; without Gradio's preprocessing, which leaves an empty file behind
        taken = file.upload(_takes(gr, uploads), file, link, preprocess=False, **at_once)
        taken.success(converts, **queued)
        gr.on([button.click, link.submit], converts, **queued)
        file.clear(_with_request(gr, lambda request: uploads.forget(request.session_hash)), **at_once)
        page.unload(_with_request(gr, lambda request: _forget(page, uploads, request.session_hash)))
    page.queue(max_size=limits.WAITING, api_open=False)
    return page


def _blocks(gr: Any, uploads: Uploads) -> Any:
    """Return Gradio's class of pages, which takes no file but those that were uploaded to this server.

    Gradio itself would download what a request names as a file by its address: in this process, without a limit.
    """

    class Page(gr.Blocks):  # type: ignore[misc]
        async def preprocess_data(self, block_fn: Any, inputs: list[Any], *more: Any, **named: Any) -> Any:
            for value in inputs:
                is_file = isinstance(value, dict) and uploads.holds(value.get("path"))
                if not (is_file or value is None or isinstance(value, str | int | float)):
                    raise gr.Error(
                        "Only a file that was dropped on this page is taken.", print_exception=False
                    )
            return await super().preprocess_data(block_fn, inputs, *more, **named)

    return Page


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


def _takes(gr: Any, uploads: Uploads) -> Callable[..., str]:
    """Return the handler of a dropped file: it is read and deleted; a pasted link goes."""

    def handle(request: Any, file: dict[str, Any]) -> str:
        try:
            uploads.take(request.session_hash, file["path"])
        except NotebookError as error:
            raise gr.Error(str(error), print_exception=False) from None
        return ""

    return _with_request(gr, handle)


def _converts(gr: Any, uploads: Uploads) -> Callable[..., Sequence[Any]]:
    """Return the handler that converts: a link goes before a file that was dropped earlier."""

    def handle(request: Any, link: str, *values: Any) -> Sequence[Any]:
        if link and link.strip():
            uploads.forget(request.session_hash)
            return None, _shown(converted(link, _named(values)))
        upload = uploads.of(request.session_hash)
        if upload is None:
            answer = Answer("failed", "Drop a notebook, or paste a link, first.")
        else:
            answer = converted(upload, _named(values))
        return gr.skip(), _shown(answer)

    return _with_request(gr, handle)


def _with_request(gr: Any, handle: Callable[..., Any]) -> Callable[..., Any]:
    """Annotate a handler's ``request``, by which Gradio knows that it is to be given."""
    handle.__annotations__ = {"request": gr.Request}
    return handle


def _named(values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip((setting.name for setting in settings()), values, strict=True))


def _shown(answer: Answer) -> str:
    folder = answer.name.removesuffix(".zip")
    stem = folder.removesuffix("_ddp") or "notebook"
    return render("web/result.html.j2", answer=answer, folder=folder, stem=stem)


def _sweep(page: Any, uploads: Uploads, ended: threading.Event) -> None:
    """Drop and delete what has expired, while the page is served."""
    while not ended.wait(limits.SWEEP_SECONDS):
        uploads.sweep()
        before = datetime.now() - timedelta(seconds=limits.KEEP_SECONDS)
        for session, used in list(page.state_holder.time_last_used.items()):
            if used < before:
                _forget(page, uploads, session)


def _forget(page: Any, uploads: Uploads, session: str) -> None:
    """Drop all that is kept for a session: Gradio keeps the last result of each, too."""
    uploads.forget(session)
    page.state_holder.session_data.pop(session, None)
    page.state_holder.time_last_used.pop(session, None)
