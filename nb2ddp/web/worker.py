"""Convert one notebook for the page, in a process of its own.

Reads a JSON object from standard input: ``source``, a link or the name of a file in the working folder,
``is_link``, ``options``, and ``memory``, its limit in bytes. Writes the fields of an `Answer` as JSON to
standard output. Reads no other file of the machine.
"""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
import sys
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from nb2ddp.ddp_folder import SCRIPT, SETUP
from nb2ddp.errors import PLEASE_REPORT, Nb2ddpError, NotebookError
from nb2ddp.options import Options
from nb2ddp.web.limits import MOST_BYTES

# What the loader and the system say where an import, say, gets no memory.
_NO_MEMORY = re.compile("failed to map segment|annot allocate memory")
_DATE = (1980, 1, 1, 0, 0, 0)  # equal conversions are equal archives


def answer(source: str, is_link: bool, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what became of a notebook, as the fields of `nb2ddp.web.conversion.Answer`; never raise."""
    try:
        return _converted(source, is_link, Options().with_(**values))
    except Nb2ddpError as error:
        return {"status": "failed", "sentence": str(error)}
    except MemoryError:
        return {"status": "failed", "sentence": too_much_memory(source)}
    except Exception as error:
        if _NO_MEMORY.search(str(error)):
            return {"status": "failed", "sentence": too_much_memory(source)}
        kind = type(error).__name__
        return {"status": "failed", "sentence": f"INTERNAL ERROR, {kind}: {error}. {PLEASE_REPORT}"}


def _converted(source: str, is_link: bool, options: Options) -> dict[str, Any]:
    from nb2ddp.conversion import report
    from nb2ddp.conversion.pipeline import convert_notebook
    from nb2ddp.ddp_folder import contents_of, kept_name
    from nb2ddp.page.page import page
    from nb2ddp.source.inputs import Input, input_of, read_input

    if is_link and not re.match("https?://", source, re.IGNORECASE):
        raise NotebookError(_NO_LINK.format(source))
    what = input_of(source) if is_link else Input(source, "file", Path(source))
    if what.kind == "kaggle":  # it would be read with the credentials of whoever serves the page
        raise NotebookError(_NO_LINK.format(source))
    notebook, text = read_input(what, public_only=True, most_bytes=MOST_BYTES)
    if text is None:
        text = Path(source).read_bytes().decode("utf-8", "replace")
    conversion = convert_notebook(notebook, options=options)
    document = report.as_json(conversion)
    if is_link:
        document["notebook"] = what.text
    made: dict[str, Any] = {"status": conversion.status, "page": page(conversion, options)}
    if conversion.status == "converted":
        files = {**conversion.files, kept_name(conversion.notebook.name, conversion.files): text}
        folder = f"{conversion.notebook.stem}_ddp"
        made |= {"name": f"{folder}.zip", "archive": _archive(folder, contents_of(files, document))}
        made["commands"] = _commands(folder, options, has_setup=SETUP in conversion.files)
    return made


def _commands(folder: str, options: Options, *, has_setup: bool) -> str:
    """Return the lines that run the folder on a machine which has no nb2ddp."""
    lines = [f"unzip {shlex.quote(folder)}.zip && cd {shlex.quote(folder)}"]
    if has_setup:
        lines.append(f"python {SETUP}    # once: what the notebook installs")
    if options.processes == 1:
        lines.append(f"python {SCRIPT}")
    else:
        lines.append(f"torchrun --standalone --nproc_per_node={options.processes} {SCRIPT}")
    return "\n".join(lines)


_NO_LINK = (
    "{} is no link that is read here: it has to begin with https:// or http://. Files are dropped on the page; "
    "notebooks of Kaggle are downloaded there first, or converted by `nb2ddp convert kaggle:OWNER/SLUG`."
)


def too_large(name: str, size: int) -> str:
    """Return the sentence on a notebook that is larger than the page takes."""
    return (
        f"{name} has {size / 1e6:.0f} MB, and {MOST_BYTES / 1e6:.0f} MB are taken at most: clear its outputs, "
        "and save it."
    )


def too_much_memory(name: str) -> str:
    """Return the sentence on a notebook whose conversion takes more memory than it may have."""
    return (
        f"{name} takes more memory than a conversion may have here; `nb2ddp convert` on your own machine has no "
        "limit."
    )


def _archive(folder: str, contents: Mapping[str, bytes]) -> str:
    """Return the folder as a zip archive, in base 64."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(f"{folder}/{name}", _DATE)
            entry.external_attr = (0o755 if content.startswith(b"#!") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return base64.b64encode(data.getvalue()).decode()


def _limit_memory(most: int) -> None:
    with suppress(ImportError, OSError, ValueError):  # Windows has none; a lower limit may be set already
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    _limit_memory(request["memory"])
    result = answer(request["source"], request["is_link"], request["options"])
    json.dump(result, sys.stdout)
