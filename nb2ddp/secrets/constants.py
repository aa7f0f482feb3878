"""Follow constant texts through code: what a notebook puts together out of parts, and the literals that went in.

Nothing is executed. Statements are read once in their order, with one set of names for all cells; what is not known
is a hole in the text around it. A value is a text, a list of values, a dict of them, or None, not known.
"""

from __future__ import annotations

import ast
import base64
import codecs
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_MOST_CODE = 1_000_000  # characters of one text that is parsed
_MOST_TEXT, _MOST_ITEMS = 100_000, 10_000  # of one value
_MOST_PIECES = 256  # of one text, whose literals are kept apart
_MOST_BUILT = 3_000_000  # characters of all that is built
HOLE = "\0"

_MAGIC = re.compile(r"(?m)^([ \t]*)[!%](?:[^\n]*\\\n)*[^\n]*|(?<==)[ \t]*[!%][^\n]*")
_LITERAL = re.compile(r"""(?s)[A-Za-z]{0,3}(\"{3}|'{3}|"|')((?:\\.|(?!\1).)*)\1""")
_FIELD = re.compile(
    r"%(?:\((\w+)\))?[-+ #0]*\d*(?:\.\d+)?([a-zA-Z%])|\{\{|\}\}|\{([^{}!:]*)(?:![rsa])?(?::[^{}]*)?\}"
)


@dataclass(frozen=True)
class Piece:
    """A part of a text, and the literals that it comes from, as they are written; ``is_whole``: it is one of them."""

    text: str
    literals: frozenset[str] = frozenset()
    is_whole: bool = False


Text = tuple[Piece, ...]


@dataclass(frozen=True)
class Built:
    """A text that code puts together: in which of the texts, the line, what stands before it, and its pieces."""

    index: int
    line: int
    context: str
    pieces: Text

    @property
    def text(self) -> str:
        """Return the text as one literal, behind the name that it is given to."""
        return f'{self.context}"{_str(self.pieces)}"'

    def literals(self, start: int, end: int) -> frozenset[str]:
        """Return the literals that a span of the text comes from."""
        found: set[str] = set()
        at = len(self.context) + 1
        for piece in self.pieces:
            if at < end and start < at + len(piece.text):
                found |= piece.literals
            at += len(piece.text)
        return frozenset(found)


@lru_cache(maxsize=8)
def built(texts: tuple[str, ...]) -> tuple[Built, ...]:
    """Return what is put together in texts that belong together, such as the cells of a notebook."""
    follower = _Follower()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an escape that a string should not have
        for index, text in enumerate(texts):
            if '"' in text or "'" in text:
                follower.read(index, text)
    return tuple(follower.built.values())


def _trees(text: str) -> Iterator[tuple[int, str, ast.Module]]:
    """Yield what can be parsed of a text: all of it, or else statement by statement, with the lines above each."""
    if len(text) > _MOST_CODE:
        return
    # Python in the place of a magic, or of one that is assigned, on as many lines
    code = _MAGIC.sub(
        lambda found: (" None" if found[1] is None else f"{found[1]}pass") + "\n" * found[0].count("\n"), text
    )
    if (tree := _parsed(code)) is not None:
        yield 0, code, tree
        return
    lines = code.split("\n")
    starts = [n for n, line in enumerate(lines) if line[:1].strip() and line[0] not in ")]}#"]
    for start, end in itertools.pairwise([*starts, len(lines)]):
        part = "\n".join(lines[start:end])
        if (tree := _parsed(part)) is not None:
            yield start, part, tree


def _parsed(code: str) -> ast.Module | None:
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.parse(code)
    return None


class _Enough(Exception):
    """The code is too long to be followed."""


class _Follower:
    def __init__(self) -> None:
        self.built: dict[object, Built] = {}
        self._names: dict[str, Any] = {}
        self._size = self._index = self._above = 0
        self._lines: list[bytes] = []

    def read(self, index: int, text: str) -> None:
        self._index = index
        for self._above, code, tree in _trees(text):
            self._lines = [line.encode("utf-8", "surrogatepass") for line in re.split("\r\n|\r|\n", code)]
            for statement in tree.body:
                with suppress(RecursionError, _Enough):
                    self._follow(statement)

    def _follow(self, node: ast.AST) -> None:
        """Follow a statement, or what is neither a statement nor an expression: a handler, a case."""
        match node:
            case ast.expr():
                self._value(node)
            case ast.Assign():
                value = self._value(node.value, f"{_name(node.targets[0])} = ")
                for target in node.targets:
                    self._bind(target, value)
            case ast.AnnAssign(value=ast.expr() as inner):
                self._bind(node.target, self._value(inner, f"{_name(node.target)} = "))
            case ast.AugAssign(op=ast.Add()):
                key = _name(node.target)
                value = self._sum([self._names.get(key), self._value(node.value)])
                self._bind(node.target, value)
                self._note(value, node, f"{key} = ", ("+=", key))
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                # all items at once: whatever the loop does, it is to put them together
                value = self._value(node.iter)
                self._bind(node.target, self._sum(value) if isinstance(value, list) else value)
                for child in ast.iter_child_nodes(node):
                    if child not in (node.target, node.iter):
                        self._follow(child)
            case _:
                for child in ast.iter_child_nodes(node):
                    self._follow(child)

    def _bind(self, target: ast.expr, value: Any) -> None:
        name = _name(target)
        if isinstance(target, ast.Tuple | ast.List):
            items = value if isinstance(value, list) else []
            for part, item in itertools.zip_longest(target.elts, items[: len(target.elts)]):
                self._bind(part, item)
        elif isinstance(value, dict):
            self._names |= {f'{name}["{key}"]': item for key, item in value.items()}
        self._names[name] = value

    # ---- expressions

    def _value(self, node: ast.expr, context: str = "") -> Any:
        value = self._made(node)
        if not isinstance(node, ast.Name | ast.Attribute):
            self._note(value, node, context, node)
        return value

    def _note(self, value: Any, node: ast.expr | ast.stmt, context: str, key: object) -> None:
        """Keep a text that is no literal as it stands; of ``x += y`` the last one alone."""
        if not isinstance(value, tuple) or (len(value) == 1 and value[0].is_whole):
            return
        before = self.built.get(key)
        size = self._size + _length(value) - (_length(before.pieces) if before else 0)
        if size > _MOST_BUILT:
            raise _Enough
        self._size = size
        self.built[key] = Built(self._index, self._above + node.lineno, context, value)

    def _note_together(self, values: Sequence[Any], node: ast.expr) -> None:
        """Keep what a call, or whatever takes a list, may put together: texts, of numbers none."""
        texts = [value for value in values if isinstance(value, tuple) and _literals(value)]
        if len(texts) > 1:
            self._note(self._sum(texts), node, "", (node, "together"))

    def _made(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=str() | bytes() as text):
                return self._literal(node, text)
            case ast.Constant(value=int() as number):
                return (Piece(str(number)),) if abs(number) < 1_000_000_000 else None
            case ast.JoinedStr(values=parts):  # all that is written in it counts as one literal
                own = frozenset(self._contents(node))
                texts = ((Piece(str(p.value), own),) if isinstance(p, ast.Constant) else None for p in parts)
                return tuple(
                    piece
                    for part, text in zip(parts, texts, strict=True)
                    for piece in text or _text(self._value(part))
                )
            case ast.FormattedValue(value=inner) | ast.Starred(value=inner):
                return self._value(inner)
            case ast.Name():
                return self._names.get(node.id)
            case ast.Attribute():
                self._value(node.value)
                return self._names.get(_name(node))
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                made = [self._value(element) for element in elements[:_MOST_ITEMS]]
                if all(isinstance(item, tuple) for item in made):
                    self._note_together(made, node)
                return made
            case ast.Dict(keys=keys, values=values):
                labels = [_str(_text(self._value(key))) if key else "" for key in keys]
                return {
                    label: self._value(item, f'"{label}": ')
                    for label, item in zip(labels, values, strict=True)
                }
            case ast.BinOp(op=ast.Add()):
                return self._sum([self._value(part) for part in _terms(node)])
            case ast.BinOp(op=ast.Mod()):
                values = self._value(node.right)
                listed = values if isinstance(values, list) else [values]
                return self._filled(
                    self._value(node.left), listed, values if isinstance(values, dict) else {}
                )
            case ast.NamedExpr(target=target, value=inner):
                value = self._value(inner, f"{_name(target)} := ")
                self._bind(target, value)
                return value
            case ast.Subscript():
                return self._item(self._value(node.value), node)
            case ast.Call():
                return self._call(node)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                for loop in node.generators:
                    self._follow(loop)
                return [self._value(node.elt)]
        for child in ast.iter_child_nodes(node):
            self._follow(child)
        return None

    def _literal(self, node: ast.expr, text: str | bytes) -> Text:
        decoded = text if isinstance(text, str) else text.decode("latin-1")
        if len(decoded) > _MOST_TEXT:
            return ()
        written = self._contents(node)
        return (Piece(decoded, frozenset(written), is_whole=written == [decoded]),) if decoded else ()

    def _contents(self, node: ast.expr) -> list[str]:
        """Return what stands between the quotes of a literal; of literals side by side, of each."""
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        lines = self._lines[first : last + 1]
        if not lines:
            return []
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        source = b"\n".join(lines).decode("utf-8", "replace")
        return [content for _, content in _LITERAL.findall(source) if content]

    def _sum(self, values: Sequence[Any]) -> Any:
        """``a + b``: of texts one of which is known, or of lists."""
        if any(isinstance(value, list) for value in values):
            lists = (value for value in values if isinstance(value, list))
            return [*itertools.islice(itertools.chain.from_iterable(lists), _MOST_ITEMS)]
        if not any(isinstance(value, tuple) for value in values):
            return None
        made = tuple(piece for value in values for piece in _text(value))
        return made if len(made) <= _MOST_PIECES else _changed(made, lambda whole: whole)

    def _filled(self, template: Any, listed: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """``template % values`` and ``template.format(*values)``."""
        if not isinstance(template, tuple):
            return None
        whole, own, waiting = _str(template), _literals(template), iter(listed)
        pieces, at = [], 0
        for field in _FIELD.finditer(whole):
            pieces.append(Piece(whole[at : field.start()], own))
            at = field.end()
            name = field[1] or re.split(r"[.\[]", field[3] or "")[0]
            if field[0] in ("{{", "}}", "%%"):
                pieces.append(Piece(field[0][0], own))
            elif name.isdigit():
                pieces += _text(next(iter(listed[int(name) :]), None))
            else:
                pieces += _text(named.get(name) if name else next(waiting, None))
        return (*pieces, Piece(whole[at:], own))

    def _item(self, value: Any, node: ast.Subscript) -> Any:
        """``value[1]`` and ``value[2:-2]`` by constants; else what the whole expression was given as a name."""
        index = node.slice
        bounds = [index.lower, index.upper, index.step] if isinstance(index, ast.Slice) else [index]
        with suppress(ValueError, TypeError, IndexError, KeyError, SyntaxError):
            numbers = [None if bound is None else ast.literal_eval(bound) for bound in bounds]
            key: Any = slice(*numbers) if isinstance(index, ast.Slice) else numbers[0]
            if isinstance(value, tuple):
                return _changed(value, lambda whole: whole[key])
            if isinstance(value, list | dict):
                return value[key]
        self._follow(index)
        return self._names.get(_name(node))

    def _call(self, node: ast.Call) -> Any:
        own = self._value(node.func.value) if isinstance(node.func, ast.Attribute) else None
        name = node.func.attr if isinstance(node.func, ast.Attribute) else _name(node.func)
        listed: list[Any] = []
        before = f"{name}("
        for argument in node.args:
            value = self._value(argument, before)
            before = f'{name}("{_str(value)[:50]}", ' if isinstance(value, tuple) else before
            listed += value if isinstance(argument, ast.Starred) and isinstance(value, list) else [value]
        named = {word.arg or "": self._value(word.value, f"{word.arg}=") for word in node.keywords}
        first = listed[0] if listed else None
        match name, own, first:
            case "format", tuple(), _:
                return self._filled(own, listed, named)
            case "format_map", tuple(), dict():
                return self._filled(own, (), first)
            case "join", tuple(), list():
                between = [own] * (2 * len(first) - 1)
                between[::2] = first
                return tuple(piece for part in between[:_MOST_ITEMS] for piece in _text(part))
            case "join", tuple(), tuple():
                return first
            case "get" | "pop" | "setdefault", dict(), tuple():
                return own.get(_str(first))
            case "append" | "extend" | "insert", list(), _:
                new = listed[-1] if listed else None
                own += new if name == "extend" and isinstance(new, list) else [new]
                del own[_MOST_ITEMS:]
                return None
            case "bytes" | "bytearray" | "chr" | "map", _, _ if listed:
                return _characters(listed[-1])
            case "reversed", _, list():
                return first[::-1]
            case "list" | "tuple" | "sorted" | "iter", _, list() | tuple():
                return first
        if name in (*_SAME, *_TRANSFORMS) and (isinstance(own, tuple) or isinstance(first, tuple)):
            text, *rest = (own, *listed) if isinstance(own, tuple) else listed
            return _transformed(name, text, rest)
        self._note_together([own, *listed, *named.values()], node)
        return None


def _str(text: Text) -> str:
    return "".join(piece.text for piece in text)


def _text(value: Any) -> Text:
    """Return a value as a part of a text; a hole where it is not known."""
    return value if isinstance(value, tuple) else (Piece(HOLE),)


def _literals(text: Text) -> frozenset[str]:
    return frozenset[str]().union(*(piece.literals for piece in text))


def _length(text: Text) -> int:
    return sum(len(piece.text) for piece in text)


def _changed(text: Text, change: Callable[[str], str]) -> Text:
    made = change(_str(text)) if _length(text) <= _MOST_TEXT else ""
    return (Piece(made, _literals(text)),) if made and len(made) <= _MOST_TEXT else ()


def _characters(value: Any) -> Any:
    """Return the text of a list of codes, as of ``map(chr, codes)``; another value as it is."""
    codes = [_str(item) for item in value if isinstance(item, tuple)] if isinstance(value, list) else [""]
    if not all(code.isdigit() and 0 < int(code) < 256 for code in codes):
        return value
    return (Piece("".join(chr(int(code)) for code in codes)),)


def _decoded(change: Callable[[str], bytes]) -> Callable[[str], str]:
    return lambda text: change(text).decode("utf-8", "replace")


_SAME = ("decode", "encode", "str", "bytes", "SecretStr", "Path")  # the text stays as it is
_STRIPS = ("lstrip", "rstrip", "strip", "removeprefix", "removesuffix", "replace")
_TRANSFORMS: dict[str, Callable[..., str]] = {
    **{name: getattr(str, name) for name in (*_STRIPS, "lower", "upper", "swapcase")},
    **dict.fromkeys(
        ("b64decode", "standard_b64decode", "urlsafe_b64decode", "decodebytes", "a2b_base64"),
        _decoded(lambda text: base64.b64decode(text.replace("-", "+").replace("_", "/") + "==")),
    ),
    **dict.fromkeys(("fromhex", "unhexlify", "a2b_hex", "b16decode"), _decoded(bytes.fromhex)),
    "b32decode": _decoded(base64.b32decode),
    "b85decode": _decoded(base64.b85decode),
    "rot13": lambda text: codecs.encode(text, "rot13"),
}


def _transformed(name: str, text: Text, rest: Sequence[Any]) -> Any:
    """Return what a method or a function makes of a text."""
    words = [_str(value) for value in rest if isinstance(value, tuple)]
    if name in ("decode", "encode") and [word.replace("_", "") for word in words[:1]] == ["rot13"]:
        name, words = "rot13", []
    if name == "replace" and (len(words) != 2 or len(_str(text)) * (len(words[1]) + 1) > _MOST_TEXT):
        return text
    if name in _SAME:
        return text
    with suppress(ValueError, TypeError):  # binascii.Error is a ValueError
        return _changed(text, lambda whole: _TRANSFORMS[name](whole, *(words if name in _STRIPS else ())))
    return text


def _name(node: ast.expr) -> str:
    """Return a name or what is like one, as it is written: ``a.b``, ``a["b"]``."""
    parts: list[str] = []
    while True:
        match node:
            case ast.Name(id=name):
                return "".join([name, *reversed(parts)])
            case ast.Attribute(value=inner, attr=attr):
                parts.append(f".{attr}")
            case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
                parts.append(f'["{key!s}"]' if not isinstance(key, bytes) else "[...]")
            case ast.Starred(value=inner) | ast.Subscript(value=inner):
                pass
            case _:
                return "".join(["?", *reversed(parts)])
        node = inner


def _terms(node: ast.expr) -> list[ast.expr]:
    """Return the terms of ``a + b + c``."""
    terms: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        terms.append(node.right)
        node = node.left
    return [node, *reversed(terms)]
