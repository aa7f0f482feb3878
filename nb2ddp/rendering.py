"""Where the templates are, and how they are filled in."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from nb2ddp.plain_text import docstring_safe, markup_safe

_PACKAGE = Path(__file__).parent


def templates_dir() -> Path:
    """Return the folder of the templates: inside the package in a wheel, beside it in a checkout."""
    for place in (_PACKAGE / "templates", _PACKAGE.parent / "templates"):
        if place.is_dir():
            return place
    raise FileNotFoundError("nb2ddp was installed without its templates")


@cache
def _environment(folder: Path, filters: frozenset[tuple[str, Callable[..., Any]]]) -> jinja2.Environment:
    """Return the environment of all templates: an undefined value is an error, block tags leave no trace.

    It is kept, and the compiled templates with it: compiling them takes half of a small conversion's time.
    Text from outside passes ``| docstring`` inside docstrings and comments, ``| e`` in HTML and SVG.
    """
    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # Python and shell text, never HTML
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters.update(filters)
    return jinja


def render(name: str, filters: Mapping[str, Callable[..., Any]] | None = None, /, **values: object) -> str:
    """Fill in one template: ``render("kaggle/kernel.py.j2", nproc=2)``; ``filters`` quote values.

    HTML and SVG come without characters that a file cannot hold.
    """
    chosen = {"docstring": docstring_safe, **(filters or {})}
    text = _environment(templates_dir(), frozenset(chosen.items())).get_template(name).render(values)
    return markup_safe(text) if name.endswith((".html.j2", ".svg.j2")) else text
