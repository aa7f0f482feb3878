"""A converted script as a Kaggle kernel on all GPUs of a session: one code file and its metadata.

Everything here is text in, text out. ``kernel-metadata.json`` is what the official ``kaggle`` client reads
in ``kernels_push``; of the code file only the text is uploaded and nothing beside it, so that one file
carries the training script and the installs.
"""

from __future__ import annotations

import ast
import base64
import functools
import json
import re
import textwrap
import unicodedata
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nb2ddp import rendering
from nb2ddp.errors import BundleError, OptionError
from nb2ddp.source.syntax_check import NOT_PYTHON, parse
from nb2ddp.targets.job import has_trainer

METADATA_FILE = "kernel-metadata.json"
UNKNOWN_OWNER = "INSERT_OWNER_SLUG_HERE"
"""Stands for the owner in a bundle without one, as the kaggle client writes it in its own templates."""


@dataclass(frozen=True)
class Accelerator:
    """GPUs that Kaggle lends: its name for them, how many they are, and what its settings call them."""

    machine_shape: str
    gpus: int
    label: str


ACCELERATORS = {
    "t4x2": Accelerator("NvidiaTeslaT4", 2, "GPU T4 x2"),
    "l4x4": Accelerator("NvidiaL4", 4, "GPU L4 x4"),
}
DEFAULT_ACCELERATOR = "t4x2"

_REFUSED_ACCELERATORS = (
    (r".*p100.*", "a P100 is one GPU, and Kaggle's image has no code for it any more"),
    (r".*tpu.*", "a TPU is no GPU, and the script trains with CUDA"),
    (r"(?:gpu|nvidia|tesla)*t4(?:x?1)?", "Kaggle lends T4s in pairs"),
    (
        r"(?:none|cpu)",
        "without GPUs there is nothing to divide; `nb2ddp rehearse` tries a script out on this CPU",
    ),
)


def accelerator_of(name: str) -> str:
    """Return the name in ``ACCELERATORS`` that is meant: it may be Kaggle's own for the machine.

    Raises BundleError for a kind that is refused, with the reason.
    """
    shapes = {kind.machine_shape.lower(): name for name, kind in ACCELERATORS.items()}
    wanted = name.strip().lower()
    if wanted in ACCELERATORS or wanted in shapes:
        return shapes.get(wanted, wanted)
    why = next(
        (why for form, why in _REFUSED_ACCELERATORS if re.fullmatch(form, wanted)), "it is not known here"
    )
    known = " or ".join(f"{name} ({kind.label})" for name, kind in ACCELERATORS.items())
    raise BundleError(f"the accelerator {name!r} cannot be used: {why}. Choose {known}.")


GPUS = ACCELERATORS[DEFAULT_ACCELERATOR].gpus

CODE_FILE_LIMIT = 700_000
"""Bytes of the code file that Kaggle takes for certain."""

SESSION_SECONDS = 12 * 3600
"""After which Kaggle ends a session with GPUs."""

# What takes longer than to save an adapter: merged weights and GGUF files are written, or uploaded.
_EXPORT = re.compile(r"save_pretrained_(?:merged|gguf)|push_to_hub|merge_and_unload")

_MIN_NAME, _MAX_NAME = 5, 50  # Kaggle's limits for titles and slugs of kernels

_SLUG = r"[A-Za-z0-9]+(?:[-_][A-Za-z0-9]+)*"
SOURCES = {
    "dataset_sources": ("datasets", rf"{_SLUG}/{_SLUG}(?:/\d+)?", "owner/slug"),
    "competition_sources": ("competitions", _SLUG, "slug"),
    "kernel_sources": ("notebooks", rf"{_SLUG}/(?=[^/]{{5}}){_SLUG}(?:/\d+)?", "owner/slug"),
    "model_sources": (
        "models",
        rf"{_SLUG}/[\w.-]+/\w+/[\w.-]+/\d+",
        "owner/model/framework/variation/version",
    ),
}
"""By the key of the metadata: the folder below /kaggle/input, and how an entry has to look for the kaggle client, in a
pattern and in words."""


# ---- names -------------------------------------------------------------------------------------------------


def kernel_title(title: str) -> str:
    """Return the title that the kernel gets: ASCII words, first a letter, 5 to 50 characters.

    Kaggle makes the slug from the title by rules of its own and refuses or renames a kernel that says
    otherwise. Of a title like this there is only one slug to make.

    >>> kernel_title("Gemma 3 (4B): Schnellkurs für Anfänger")
    'Gemma 3 4B Schnellkurs fur Anfanger'
    """
    decomposed = unicodedata.normalize("NFKD", title.replace("ß", "ss"))
    letters = "".join(c for c in decomposed if not unicodedata.combining(c))
    name = " ".join(re.findall("[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*", letters))
    if not name[:1].isalpha():
        name = f"Notebook {name}".rstrip()
    if len(name) < _MIN_NAME:
        name += " ddp"
    if len(name) > _MAX_NAME:
        whole_words = name[: _MAX_NAME + 1].rpartition(" ")[0]
        name = whole_words if len(whole_words) >= _MIN_NAME else name[:_MAX_NAME].rstrip("-")
    return name


def slugify(title: str) -> str:
    """Return the last part of the kernel's address: a letter, then ``a-z0-9-``, 5 to 50 characters.

    >>> slugify("Gemma 3 (4B): Schnellkurs für Anfänger")
    'gemma-3-4b-schnellkurs-fur-anfanger'
    """
    return kernel_title(title).lower().replace(" ", "-")


# ---- what the notebook reads -------------------------------------------------------------------------------


@dataclass(frozen=True)
class InputSources:
    """The inputs a script reads, as the entries that attach them, by the keys of `SOURCES`, in order of appearance.

    ``unresolved``: names below /kaggle/input that do not say who owns them, nor what they are.
    """

    attached: Mapping[str, Any] = field(default_factory=dict)
    unresolved: Sequence[str] = ()


_INPUT_PATH = re.compile(r"(?:/kaggle|(?<![\w./])\.\.)/input/([\w.-]+(?:/[\w.-]+)*)(/?[{*])?")


def input_sources(text: str) -> InputSources:
    """Return what can be known from the ``/kaggle/input/…`` and ``../input/…`` paths in a text."""
    attached: dict[str, dict[str, None]] = {}
    unresolved: dict[str, None] = {}
    for path, open_end in _INPUT_PATH.findall(text):
        folder, *parts = path.rstrip(".").split("/")
        key = next((key for key, (name, *_) in SOURCES.items() if name == folder), None)
        if key is None:
            if open_end not in ("{", "*") or parts:
                unresolved[folder] = None
            continue
        _, pattern, form = SOURCES[key]
        length = form.count("/") + 1
        entry = "/".join(parts[:length])
        cut_short = len(parts) == length and open_end in ("{", "*")  # the last name goes on
        if re.fullmatch(pattern, entry) and not cut_short:
            attached.setdefault(key, {})[entry] = None
        elif parts:
            unresolved[f"{folder}/{entry}"] = None
    return InputSources({key: tuple(entries) for key, entries in attached.items()}, tuple(unresolved))


# ---- the bundle --------------------------------------------------------------------------------------------


def kaggle_bundle(
    script: str,
    *,
    title: str,
    owner: str | None,
    setup: str | None,
    support: str | None = None,
    notebook_name: str,
    enable_internet: bool = True,
    nproc: int | None = None,
    accelerator: str = DEFAULT_ACCELERATOR,
    timeout: int | None = None,
    resume_from: str | None = None,
    local: tuple[str, Sequence[str]] | None = None,
    **sources: Iterable[str],
) -> dict[str, str]:
    """Return the files of the kernel by name: ``kernel-metadata.json`` and ``<slug>.py``.

    script: the converted training script.
    title: see ``kernel_title`` for what becomes of it.
    owner: the Kaggle user or organisation; None leaves ``UNKNOWN_OWNER`` in the metadata.
    support: the module that the script imports from beside it, or None.
    setup: a Python script that is run once before the training, or None.
    nproc: how many processes train; None: as many as the accelerator has GPUs.
    accelerator: one of ``ACCELERATORS``.
    enable_internet: without it ``setup`` is taken to install from attached datasets.
    timeout: seconds after which Kaggle ends the session, 12 hours unless told; a Trainer stops before that,
        with a checkpoint.
    resume_from: go on from the last checkpoint in this output: ``owner/slug`` of a kernel, or
        ``datasets/owner/slug``; it has to be among the sources.
    local: a dataset, which has to be among the sources, and the paths in it that the script reads.
    sources: what is attached, by the keys of `SOURCES`.

    Raises BundleError for values that Kaggle would refuse, OptionError for an owner that cannot be.
    """
    kind, slug = ACCELERATORS[accelerator], slugify(title)
    code_file = f"{slug}.py"
    nproc = kind.gpus if nproc is None else nproc
    _check(nproc, kind, owner, resume_from)
    metadata = {
        "id": f"{owner or UNKNOWN_OWNER}/{slug}",
        "title": kernel_title(title),
        "code_file": code_file,
        "language": "python",
        "kernel_type": "script",
        "is_private": True,
        "enable_gpu": True,
        "enable_tpu": False,
        "enable_internet": enable_internet,
        **{key: list[str]() for key in SOURCES},
        **{key: _checked(key, entries) for key, entries in sources.items()},
        "machine_shape": kind.machine_shape,
    }
    made = functools.partial(
        rendering.render,
        "kaggle/kernel.py.j2",
        notebook=notebook_name,
        nproc=nproc,
        accelerator=kind.label,
        check_internet=setup is not None and enable_internet,
        tokens=json.dumps({"HF_TOKEN": "optional"} | tokens_read(script)),
        train_for=_train_for(script, timeout),
        resume_from=resume_from,
        local_from=local and local[0],
        local=json.dumps(list(local[1])) if local else None,
        reads_secrets="kaggle_secrets" in script,
        script=literal(script),
        setup=None if setup is None else literal(setup),
    )
    code = made(support=None if support is None else literal(support), is_packed=False)
    if support is not None and oversize({code_file: code}):
        code = made(support=packed(support), is_packed=True)
    return {METADATA_FILE: json.dumps(metadata, indent=2) + "\n", code_file: code}


def _check(nproc: int, kind: Accelerator, owner: str | None, resume_from: str | None) -> None:
    """Raise BundleError or OptionError for what Kaggle would refuse."""
    if not 1 <= nproc <= kind.gpus:
        raise BundleError(f"{kind.label} has {kind.gpus} GPUs, so it cannot run {nproc} processes.")
    if owner is not None and not re.fullmatch(_SLUG, owner):
        raise OptionError(
            f"{owner!r} is no name of a Kaggle user: the one in your profile's address is meant."
        )
    if resume_from is not None:
        key = "dataset_sources" if resume_from.startswith("datasets/") else "kernel_sources"
        _checked(key, [resume_from.removeprefix("datasets/")])


def _train_for(script: str, timeout: int | None) -> int | None:
    """Return the seconds after which a training stops; None where nothing could stop it.

    The rest of the session is for a checkpoint and what the script does after the training.
    """
    if timeout is None and not has_trainer(script):
        return None
    limit = SESSION_SECONDS if timeout is None else timeout
    to_end = 2700 if _EXPORT.search(script) else 900
    return limit - min(to_end, limit // 5)


def oversize(bundle: Mapping[str, str]) -> str | None:
    """Return the sentence to say when Kaggle would not take the code file, else None."""
    for name, text in bundle.items():
        size = len(text.encode())
        if name.endswith(".py") and size > CODE_FILE_LIMIT:
            return (
                f"{name} has {size / 1000:.0f} KB and Kaggle takes {CODE_FILE_LIMIT // 1000} KB: "
                "move the data that is written out in the notebook to a dataset and attach that."
            )
    return None


def _checked(key: str, sources: Iterable[str]) -> list[str]:
    folder, pattern, form = SOURCES[key]
    entries = list(dict.fromkeys(sources))
    for entry in entries:
        if not re.fullmatch(pattern, entry):
            raise BundleError(
                f"{entry!r} cannot be attached from Kaggle's {folder}: it has to look like {form}."
            )
    return entries


def literal(text: str) -> str:
    """Return a Python expression for a text: its very lines in raw quotes, else one string per line.

    Kaggle's editor shows the lines as they are, and a diff of two versions shows the lines that changed.
    The expression is tried out, so whatever is returned is exact.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        place = text.count("\n", 0, error.start) + 1
        raise BundleError(
            f"Line {place} of a script holds half a character, which no file can store."
        ) from None
    for quotes in ("'''", '"""'):
        expression = f"r{quotes}\n{text}{quotes}"
        try:
            exact = ast.literal_eval(expression) == f"\n{text}"
        except (SyntaxError, ValueError):  # quotes, a backslash at the end, a null character
            continue
        if exact:  # carriage returns are lost
            return f"{expression}[1:]"
    lines = "".join(f"    {line!r}\n" for line in text.splitlines(keepends=True))
    return f"(\n{lines})"


def packed(text: str) -> str:
    """Return a Python expression for a text that is compressed, where its lines would make the code file too large."""
    lines = "\n".join(textwrap.wrap(base64.b64encode(zlib.compress(text.encode(), 9)).decode(), 100))
    return f'zlib.decompress(base64.b64decode("""\n{lines}\n""")).decode()'


# ---- tokens ------------------------------------------------------------------------------------------------

_TOKEN_NAME = re.compile(r"[A-Z][A-Z0-9_]*(?:TOKEN|KEY|SECRET|PASSWORD)")
_MAY_NOT_RUN = ast.IfExp | ast.BoolOp | ast.Lambda
_HOW = ("", "optional", "required", "secret")


def tokens_read(script: str) -> dict[str, str]:
    """Return the names of the tokens a script reads, and how: "optional", "required" or "secret".

    "required" is ``os.environ["NAME"]`` and "secret" is ``get_secret("NAME")`` of kaggle_secrets, where the
    script cannot go on without them: at the top level, not in a branch or a try, and not set before.
    """
    try:
        module = parse(script)
    except NOT_PYTHON:
        return {}
    found: dict[str, str] = {}
    for statement in module.body:
        nodes = list(ast.walk(statement))
        certain = isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr)
        certain = certain and not any(isinstance(node, _MAY_NOT_RUN) for node in nodes)
        here = {
            name: how if certain else "optional"
            for name, how in sorted(map(_read, nodes), key=lambda read: _HOW.index(read[1]))
            if name
        }
        found = here | found
    return found


def _read(node: ast.AST) -> tuple[str, str]:
    """Return the token that this one expression reads or sets and how, or two empty strings."""
    match node:
        case ast.Call(ast.Attribute(attr="get_secret"), [ast.Constant(str(name))]):
            return name, "secret"
        case ast.Subscript(ast.Attribute() | ast.Name() as environ, ast.Constant(str(name)), context):
            if not ast.unparse(environ).endswith("environ"):
                return "", ""
            how = "required" if isinstance(context, ast.Load) else "optional"
        case ast.Call(ast.Attribute() | ast.Name() as called, [ast.Constant(str(name)), *_]):
            if not re.search(r"\b(?:environ\.get|getenv)$", ast.unparse(called)):
                return "", ""
            how = "optional"
        case _:
            return "", ""
    return (name, how) if _TOKEN_NAME.fullmatch(name) else ("", "")
