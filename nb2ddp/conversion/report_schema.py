"""The JSON schema of a conversion's report: `report.json`, and what `convert --json` prints."""

from __future__ import annotations

import types
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {str: "string", int: "integer", type(None): "null"}


class Decline(TypedDict):
    """What was declined."""

    rule: Annotated[str, "The rule, as `nb2ddp rules` names it."]
    cell: Annotated[int | None, "Number of the code cell, from 1; null for the notebook as a whole."]
    line: Annotated[int | None, "Line in the cell, from 1."]
    why: Annotated[str, "The reason, and for a decline what to do."]


class Change(Decline):
    """What was changed."""

    script_line: Annotated[int | None, "Line of the script, from 1."]


class Report(TypedDict):
    """The report of one notebook; several notebooks are a list of them."""

    notebook: Annotated[str, "The notebook's path, as it was named."]
    status: Annotated[Literal["converted", "declined", "failed"], "What became of it."]
    script: Annotated[str | None, "The script's path; null if there is none."]
    changes: Annotated[list[Change], "What was changed, in the order of the rules."]
    declined: Annotated[list[Decline], "What was declined; empty if it was converted."]
    notes: Annotated[list[str], "What the user should know."]
    source_map: Annotated[
        list[list[int]], "Runs of lines: first line of the script, how many, cell, first line in it."
    ]
    files: NotRequired[
        Annotated[dict[str, str], "In report.json alone: the SHA-256 of each file that was written."]
    ]


def report_schema() -> dict[str, Any]:
    """Return the schema of one notebook's report."""
    return {"$schema": _DRAFT, "title": "Report of an nb2ddp conversion", **_schema(Report)}


def _schema(kind: Any) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is NotRequired:
        return _schema(arguments[0])
    if origin is Annotated:
        return {"description": arguments[1], **_schema(arguments[0])}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"type": [_TYPES[each] for each in arguments]}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1])}
    if kind in _TYPES:
        return {"type": _TYPES[kind]}
    keys = get_type_hints(kind, include_extras=True)
    return {
        "type": "object",
        "properties": {name: _schema(of) for name, of in keys.items()},
        "required": [name for name, of in keys.items() if get_origin(of) is not NotRequired],
        "additionalProperties": False,
    }
