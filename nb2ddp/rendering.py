"""Where the templates are, and how they are filled in."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2

_PACKAGE = Path(__file__).parent


def templates_dir() -> Path:
    """A wheel carries the templates inside the package; a checkout keeps them beside it."""
    for place in (_PACKAGE / "templates", _PACKAGE.parent / "templates"):
        if place.is_dir():
            return place
    raise FileNotFoundError("nb2ddp was installed without its templates")


def environment() -> jinja2.Environment:
    """A value that a template names and nobody gave is an error; block tags leave no trace in the text."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir()),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # Python and shell text, never HTML
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(name: str, filters: Mapping[str, Callable[..., Any]] | None = None, /, **values: object) -> str:
    """Fill in one template: ``render("kaggle/kernel.py.j2", nproc=2)``; ``filters`` quote values."""
    jinja = environment()
    jinja.filters.update(filters or {})
    return jinja.get_template(name).render(values)
