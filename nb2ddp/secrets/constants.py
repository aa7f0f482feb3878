"""Follow constant texts through code: what a notebook puts together out of parts, and the literals that went in.

Nothing is executed. Statements are read once in their order, with one set of names for all cells; what is not known
is a hole in the text around it. A value is a text, a number, a list of values, a dict of them, or None, not known.
"""

from __future__ import annotations

import ast
import base64
import binascii
import codecs
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_MOST_CODE = 1_000_000  # characters of one text that is parsed
_MOST_STEPS, _MOST_OF_ONE = 500_000, 50_000  # expressions that are followed: of all, and of one statement
_MOST_TEXT, _MOST_ITEMS = 100_000, 10_000  # of one value
_MOST_PIECES = 256  # of one text, whose literals are kept apart
_MOST_BUILT = 3_000_000  # characters of all that is built
_MOST_TURNS = 300  # of one loop
HOLE = "\0"

_MAGIC = re.compile(r"(?m)^([ \t]*)[!%](?:[^\n]*\\\n)*[^\n]*|(?<==)[ \t]*[!%][^\n]*")
_LITERAL = re.compile(r"""(?s)[A-Za-z]{0,3}(\"{3}|'{3}|"|')((?:\\.|(?!\1).)*)\1""")
_WIDE = re.compile(
    r"\d{4,}|\*|\{[^{}]*\{"
)  # a width that makes a long text of a short one, or comes from elsewhere
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
    code = _MAGIC.sub(_without_magic, text)
    tree = _parsed(code)
    if tree is not None:
        yield 0, code, tree
        return
    lines = code.split("\n")
    starts = [n for n, line in enumerate(lines) if line[:1].strip() and line[0] not in ")]}#"]
    for start, end in itertools.pairwise([*starts, len(lines)]):
        part = "\n".join(lines[start:end])
        if (tree := _parsed(part)) is not None:
            yield start, part, tree


def _without_magic(found: re.Match[str]) -> str:
    """Return Python in the place of a magic, or of one that is assigned, on as many lines."""
    stands_for = " None" if found[1] is None else f"{found[1]}pass"
    return stands_for + "\n" * found[0].count("\n")


def _parsed(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Enough(Exception):
    """The code is too long to be followed."""


class _Follower:
    def __init__(self) -> None:
        self.built: dict[object, Built] = {}
        self._names: dict[str, Any] = {}
        self._functions: dict[str, ast.FunctionDef] = {}
        self._steps = self._last = self._size = self._depth = 0
        self._index = self._above = 0
        self._lines: list[bytes] = []

    def read(self, index: int, text: str) -> None:
        self._index = index
        for self._above, code, tree in _trees(text):
            self._lines = [line.encode("utf-8", "surrogatepass") for line in re.split("\r\n|\r|\n", code)]
            for statement in tree.body:
                self._last = min(self._steps + _MOST_OF_ONE, _MOST_STEPS)
                with suppress(RecursionError, _Enough):
                    self._run([statement])

    # ---- statements

    def _run(self, statements: Sequence[ast.stmt]) -> Any:
        """Follow statements; return what is returned in them."""
        returned = None
        for node in statements:
            match node:
                case ast.Assign():
                    value = self._value(node.value, f"{_name(node.targets[0])} = ")
                    for target in node.targets:
                        self._bind(target, value)
                case ast.AnnAssign(value=ast.expr()):
                    self._bind(node.target, self._value(node.value, f"{_name(node.target)} = "))
                case ast.AugAssign(op=ast.Add()):
                    key = _name(node.target)
                    value = self._sum([self._look_up(key), self._value(node.value)])
                    self._bind(node.target, value)
                    self._note(value, node, f"{key} = ", ("+=", key))
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    if isinstance(node, ast.FunctionDef):
                        self._functions[node.name] = node
                    for argument, default in _defaults(node.args):
                        self._names[argument] = self._value(default, f"{argument} = ")
                    self._run(node.body)
                case ast.Return(value=ast.expr()):
                    returned = self._value(node.value)
                case ast.For():
                    for item in self._items(self._value(node.iter)) or [None]:
                        self._bind(node.target, item)
                        self._run(node.body)
                    self._run(node.orelse)
                case _:
                    for child in ast.iter_child_nodes(node):
                        if isinstance(child, ast.expr):
                            self._value(child)
                        elif isinstance(child, ast.stmt):
                            returned = self._run([child]) or returned
                        else:  # a handler, a case, an item of a with statement
                            for part in ast.walk(child) if isinstance(child, ast.withitem) else [child]:
                                self._run([s for s in ast.iter_child_nodes(part) if isinstance(s, ast.stmt)])
                                for expression in ast.iter_child_nodes(part):
                                    if isinstance(expression, ast.expr):
                                        self._value(expression)
        return returned

    def _bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            items = self._items(value) or []
            for n, part in enumerate(target.elts):
                self._bind(part, items[n] if n < len(items) else None)
        elif isinstance(target, ast.Subscript):
            holder, key = self._value(target.value), self._value(target.slice)
            if isinstance(holder, dict) and isinstance(key, tuple):
                holder[_str(key)] = value
        self._names[_name(target)] = value

    # ---- expressions

    def _value(self, node: ast.expr | None, context: str = "") -> Any:
        self._steps += 1
        if self._steps > self._last:
            raise _Enough
        if node is None:
            return None
        value = self._made(node)
        if not isinstance(node, ast.Name | ast.Attribute):
            self._note(value, node, context, node)
        return value

    def _note(self, value: Any, node: ast.expr | ast.stmt, context: str, key: object) -> None:
        """Keep a text that is no literal as it stands; of ``x += y`` the last one alone."""
        if not isinstance(value, tuple) or (len(value) == 1 and value[0].is_whole):
            return
        before = self.built.get(key)
        self._size += sum(len(piece.text) for piece in value)
        self._size -= sum(len(piece.text) for piece in before.pieces) if before else 0
        if self._size > _MOST_BUILT:
            raise _Enough
        self.built[key] = Built(self._index, self._above + node.lineno, context, value)

    def _made(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=str() | bytes() as text):
                return self._literal(node, text)
            case ast.Constant(value=int() as number):
                return number if abs(number) < 1_000_000_000 else None
            case ast.JoinedStr(values=parts):
                return self._written(node, parts)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                number = self._value(inner)
                return -number if isinstance(number, int) else None
            case ast.FormattedValue(value=inner):
                return self._value(inner)
            case ast.Name() | ast.Attribute():
                if isinstance(node, ast.Attribute):
                    self._value(node.value)
                return self._look_up(_name(node))
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                return self._list(elements)
            case ast.Dict(keys=keys, values=values):
                made: dict[str, Any] = {}
                for key, item in zip(keys, values, strict=True):
                    name = self._value(key)
                    label = _str(name) if isinstance(name, tuple) else ""
                    made[label] = self._value(item, f'"{label}": ')
                return made
            case ast.BinOp(op=ast.Add()):
                return self._sum([self._value(part) for part in _terms(node)])
            case ast.BinOp(op=ast.Mod()):
                return self._filled(self._value(node.left), self._value(node.right))
            case ast.BinOp(op=ast.Mult()):
                left, right = self._value(node.left), self._value(node.right)
                times, text = (left, right) if isinstance(left, int) else (right, left)
                if (
                    isinstance(times, int)
                    and isinstance(text, tuple)
                    and times * len(_str(text)) <= _MOST_TEXT
                ):
                    return _changed(text, lambda whole: whole * times)
                return None
            case ast.IfExp(body=first, orelse=second):
                self._value(node.test)
                known = [self._value(first), self._value(second)]
                return next((value for value in known if value is not None), None)
            case ast.BoolOp(values=values):
                known = [self._value(value) for value in values]
                return next((value for value in known if value is not None), None)
            case ast.NamedExpr(target=target, value=inner):
                value = self._value(inner, f"{_name(target)} := ")
                self._bind(target, value)
                return value
            case ast.Subscript(value=inner, slice=index):
                return self._item(self._value(inner), index, node)
            case ast.Call():
                return self._call(node)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                first_loop = node.generators[0]
                made_items = []
                for item in self._items(self._value(first_loop.iter)) or []:
                    self._bind(first_loop.target, item)
                    made_items.append(self._value(node.elt))
                return made_items
            case ast.Starred(value=inner):
                return self._value(inner)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._value(child)
        return None

    def _look_up(self, name: str) -> Any:
        return self._names.get(name)

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

    def _written(self, node: ast.JoinedStr, parts: Sequence[ast.expr]) -> Text:
        """An f-string: all that is written in it counts as one literal."""
        own = frozenset(self._contents(node))
        pieces: list[Piece] = []
        for part in parts:
            if isinstance(part, ast.Constant):
                pieces.append(Piece(str(part.value), own))
            else:
                pieces += _text(self._value(part))
        return tuple(pieces)

    def _list(self, elements: Sequence[ast.expr]) -> list[Any]:
        made: list[Any] = []
        for element in elements:
            value = self._value(element)
            more = self._items(value) if isinstance(element, ast.Starred) else None
            made += more if more is not None else [value]
            if len(made) > _MOST_ITEMS:
                return made
        texts = [item for item in made if isinstance(item, tuple)]
        if len(texts) > 1 and len(texts) == len(made):  # whatever puts them together
            self._note(self._sum(texts), elements[0], "", (elements[0], "items"))
        return made

    def _items(self, value: Any) -> list[Any] | None:
        if isinstance(value, dict):
            value = [(Piece(key),) for key in value]
        if isinstance(value, tuple):
            value = [(Piece(c, piece.literals),) for piece in value for c in piece.text[:_MOST_TURNS]]
        return value[:_MOST_TURNS] if isinstance(value, list) else None

    def _sum(self, values: Sequence[Any]) -> Any:
        """``a + b``: of texts one of which is known, or of lists."""
        if any(isinstance(value, list) for value in values):
            return [item for value in values for item in (value if isinstance(value, list) else [])][
                :_MOST_ITEMS
            ]
        if not any(isinstance(value, tuple) for value in values):
            numbers = [value for value in values if isinstance(value, int)]
            return sum(numbers) if len(numbers) == len(values) else None
        made = tuple(piece for value in values for piece in _text(value))
        return made if len(made) <= _MOST_PIECES else _changed(made, lambda whole: whole)

    def _filled(self, template: Any, values: Any) -> Any:
        """``template % values`` and ``template.format(*values)``."""
        if not isinstance(template, tuple) or _WIDE.search(whole := _str(template)):
            return None
        own = frozenset[str]().union(*(piece.literals for piece in template))
        named: Any = values if isinstance(values, dict | _Arguments) else {}
        waiting = iter(values if isinstance(values, list) else [values])
        listed = values if isinstance(values, list) else [values]
        pieces, at = [], 0
        for field in _FIELD.finditer(whole):
            pieces.append(Piece(whole[at : field.start()], own))
            at = field.end()
            name = field[1] or re.split(r"[.\[]", field[3] or "")[0]
            if field[0] in ("{{", "}}", "%%"):
                pieces.append(Piece(field[0][0], own))
            elif name.isdigit():
                pieces += _text(listed[int(name)] if int(name) < len(listed) else None)
            else:
                pieces += _text(named.get(name) if name else next(waiting, None))
        return (*pieces, Piece(whole[at:], own))

    def _item(self, value: Any, index: ast.expr, node: ast.Subscript) -> Any:
        bounds = [index.lower, index.upper, index.step] if isinstance(index, ast.Slice) else [index]
        numbers = [self._value(bound) for bound in bounds]
        if any(bound is not None and number is None for bound, number in zip(bounds, numbers, strict=True)):
            return self._look_up(_name(node))
        if isinstance(value, dict) and isinstance(numbers[0], tuple):
            return value.get(_str(numbers[0]))
        key = slice(*numbers) if isinstance(index, ast.Slice) else numbers[0]
        if all(n is None or isinstance(n, int) for n in numbers) and isinstance(key, slice | int):
            try:
                return _changed(value, lambda whole: whole[key]) if isinstance(value, tuple) else value[key]
            except (TypeError, ValueError, IndexError, KeyError):
                return None
        return self._look_up(_name(node))

    def _call(self, node: ast.Call) -> Any:
        own = self._value(node.func.value) if isinstance(node.func, ast.Attribute) else None
        name = node.func.attr if isinstance(node.func, ast.Attribute) else _name(node.func)
        listed: list[Any] = []
        before = f"{name}("
        for argument in node.args:
            value = self._value(argument, before)
            before = f'{name}("{_str(value)[:50]}", ' if isinstance(value, tuple) else before
            more = self._items(value) if isinstance(argument, ast.Starred) else None
            listed += more if more is not None else [value]
        named = {word.arg or "": self._value(word.value, f"{word.arg}=") for word in node.keywords}
        if isinstance(own, tuple) and name in ("format", "format_map"):
            if name == "format_map" and listed and isinstance(listed[0], dict):
                named = listed[0]
            return self._filled(own, _Arguments(listed, named))
        if isinstance(own, tuple) and name == "join" and listed:
            items = self._items(listed[0])
            return self._joined(own, items) if items is not None else None
        if isinstance(own, dict) and name in ("get", "pop", "setdefault") and listed:
            return own.get(_str(listed[0])) if isinstance(listed[0], tuple) else None
        if isinstance(own, list) and name in ("append", "extend", "insert"):
            new = listed[-1] if listed else None
            own += [new] if name != "extend" else self._items(new) or []
            del own[_MOST_ITEMS:]
            return None
        if name in _TRANSFORMS and (isinstance(own, tuple) or (listed and isinstance(listed[0], tuple))):
            text, rest = (own, listed) if isinstance(own, tuple) else (listed[0], listed[1:])
            return _transformed(name, text, rest)
        if name == "chr" and listed and isinstance(listed[0], int) and 0 < listed[0] < 0x110000:
            return (Piece(chr(listed[0])),)
        if name in ("reversed", "list", "tuple", "sorted", "iter") and listed:
            items = self._items(listed[0])
            return items[::-1] if items is not None and name == "reversed" else items
        if name in ("bytes", "bytearray") and listed and isinstance(listed[0], list):
            codes = [code for code in listed[0] if isinstance(code, int) and 0 <= code < 256]
            return (Piece("".join(map(chr, codes))),)
        function = self._functions.get(name) if isinstance(node.func, ast.Name) else None
        if function is not None and self._depth < 3:
            parameters = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
            self._names |= {**dict(zip(parameters, listed, strict=False)), **named}
            self._depth += 1
            try:
                return self._run(function.body)
            finally:
                self._depth -= 1
        if name == "map" and len(listed) == 2:
            item = ast.copy_location(ast.Name("map item", ast.Load()), node)
            call = ast.copy_location(ast.Call(node.args[0], [item], []), node)
            made = []
            for value in self._items(listed[1]) or []:
                self._names["map item"] = value
                made.append(self._value(call))
            return made
        texts = [value for value in [own, *listed, *named.values()] if isinstance(value, tuple)]
        if len(texts) > 1:  # whatever the call puts together
            self._note(self._sum(texts), node, "", (node, "arguments"))
        return None

    def _joined(self, between: Text, items: Sequence[Any]) -> Text:
        if len(items) * (1 + len(between)) > _MOST_ITEMS:
            return ()
        pieces: list[Piece] = []
        for n, item in enumerate(items):
            pieces += [*(between if n else ()), *_text(item)]
        return tuple(pieces)


class _Arguments(list[Any]):
    """The arguments of a call of ``format``."""

    def __init__(self, listed: Sequence[Any], named: dict[str, Any]) -> None:
        super().__init__(listed)
        self.get = named.get


def _str(text: Text) -> str:
    return "".join(piece.text for piece in text)


def _text(value: Any) -> Text:
    """Return a value as a part of a text; a hole where it is not known."""
    if isinstance(value, tuple):
        return value
    return (Piece(str(value) if isinstance(value, int) else HOLE),)


def _changed(text: Text, change: Callable[[str], str]) -> Text:
    literals = frozenset[str]().union(*(piece.literals for piece in text))
    made = change(_str(text))
    return (Piece(made, literals),) if made and len(made) <= _MOST_TEXT else ()


def _decoded(change: Callable[[str], bytes]) -> Callable[[str], str]:
    return lambda text: change(text).decode("utf-8", "replace")


def _same(text: str, *_: str) -> str:
    return text


_TRANSFORMS: dict[str, Callable[..., str]] = {
    **dict.fromkeys(("decode", "encode", "str", "bytes", "strip", "SecretStr", "Path"), _same),
    **{name: getattr(str, name) for name in ("lstrip", "rstrip", "strip", "lower", "upper", "swapcase")},
    **{name: getattr(str, name) for name in ("removeprefix", "removesuffix", "replace")},
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
    if name in ("decode", "encode") and words[:1] and words[0].replace("_", "") == "rot13":
        name, words = "rot13", []
    if name == "replace" and (len(words) != 2 or len(_str(text)) * (len(words[1]) + 1) > _MOST_TEXT):
        return text
    takes = {"lstrip", "rstrip", "strip", "removeprefix", "removesuffix", "replace"}
    if _TRANSFORMS[name] is _same and not words:
        return text
    try:
        return _changed(text, lambda whole: _TRANSFORMS[name](whole, *(words if name in takes else ())))
    except (ValueError, TypeError, binascii.Error):
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


def _defaults(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    listed = [*arguments.posonlyargs, *arguments.args]
    for argument, default in zip(reversed(listed), reversed(arguments.defaults), strict=False):
        yield argument.arg, default
    for argument, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if keyword_default is not None:
            yield argument.arg, keyword_default
