"""Turn what IPython understands into Python: magics and shell lines become ``get_ipython()`` calls.

IPython's own transformer does the work, so that ``!`` inside a string, a continued ``!cmd \\`` and
``x = !cmd`` come out as they would run. The rules then replace every such call.
"""

from __future__ import annotations

import ast
import re
import tokenize
import warnings
from dataclasses import dataclass

from nb2ddp.source.line_matcher import LineMatcher

# Cell magics whose body is the notebook's own Python, run in its namespace.
PYTHON_CELL_MAGICS = frozenset("capture time timeit prun memit snakeviz scalene wandb run_ddp".split())
# Options of %%run_ddp with which it trains nothing, and its cell is not run: `nb2ddp.jupyter.arguments` has them all.
_RUNS_NOTHING = ("--show", "--help")
# `%%script false` and the like skip a cell: the program does not read it.
_SKIPPING = re.compile(r"(?:\s*--\S+)*\s*((?:false|true|echo)(?!\S).*)")
# Cell magics that only show something.
DISPLAY_CELL_MAGICS = frozenset({"html", "HTML", "javascript", "js", "latex", "markdown", "svg", "SVG"})

_MAYBE_MAGIC = re.compile(
    r"^[ \t]*(?:[!%?;,/]|>>> |In \[\d+\]:)|=[ \t]*[!%]|\?[ \t]*$|get_ipython\(\)\.run_line_magic",
    re.MULTILINE,
)
_MAGIC_LINE = re.compile(r"^[ \t]*[!%]|^[^#'\"]*=[ \t]*[!%]")
_INDENTED = re.compile(r"\A(?:[ \t]*\n)*([ \t]+)(?=[^\s#]|#.*\n(?:[ \t]*(?:#.*)?\n)*[ \t]+[^\s#])")
_TIMED = re.compile(
    r"""^(?P<indent>[ \t]*)(?P<target>[^#'"(]+=[ \t]*)?
    get_ipython\(\)\.run_line_magic\(['"](?P<magic>time|timeit|prun)['"],[ ](?P<code>'.*'|".*")\)[ \t]*$""",
    re.VERBOSE,
)
_PYLAB = re.compile(r"""^([ \t]*)get_ipython\(\)\.run_line_magic\(['"]pylab['"], ['"][^'"]*['"]\)[ \t]*$""")
_PYLAB_IMPORTS = (
    "import numpy, numpy as np, matplotlib, matplotlib.pyplot as plt",
    "from matplotlib import mlab, pylab, pyplot",
    "figsize = lambda x, y: pylab.rcParams.update({'figure.figsize': [x, y]})",  # IPython's own
    "from matplotlib.pylab import *",
    "from numpy import *",
)
_AIMPORT = re.compile(
    r"""^([ \t]*)get_ipython\(\)\.run_line_magic\(['"]aimport['"], ['"]([\w., ]*\w)['"]\)[ \t]*$"""
)
_TOO_MANY = "IPython gives up on more than 500 magics: split the cell"
_OPTIONS = re.compile(r"^(?:-\w+\s+(?:\d+\s+)?)*")
_CELL_MAGIC = re.compile(r"\A((?:[ \t]*(?:#[^\n]*)?\n)*)%%([A-Za-z!][\w]*)([^\n]*)\n?(.*)\Z", re.DOTALL)


@dataclass(frozen=True)
class Expansion:
    """Text of a command, and the expression that IPython would expand behind it; None at the end."""

    text: str
    expression: str | None
    conversion: str | None


@dataclass(frozen=True)
class PythonText:
    """Python text of one cell; ``lines[i]`` is the notebook's line of text line ``i + 1``."""

    text: str
    lines: tuple[int, ...]

    def notebook_line(self, line: int) -> int:
        """Return the cell's line that a line of the text came from, both counted from 1."""
        return self.lines[min(line, len(self.lines)) - 1] if self.lines else 1


def to_python(source: str) -> PythonText:
    """Return the cell as Python, with line numbers that lead back to what the user typed.

    Raises:
        SyntaxError: IPython itself cannot read the cell.
    """
    lines = tuple(range(1, source.count("\n") + 2))
    cell_magic = _CELL_MAGIC.match(source)
    if cell_magic:
        before, name, arguments, body = cell_magic.groups()
        skipped = before.count("\n") + 1
        if name in PYTHON_CELL_MAGICS and not (name == "run_ddp" and runs_nothing(arguments)):
            inner = to_python(body)
            caught = arguments.split()[:1] if name == "capture" else []
            if caught and not caught[0].startswith(("-", "#")):  # the name that is to hold the output
                before += f"get_ipython().run_line_magic('capture', {caught[0]!r})\n"
            text = before + inner.text
            return PythonText(text, lines[: before.count("\n")] + tuple(n + skipped for n in inner.lines))
        if name in DISPLAY_CELL_MAGICS:
            return PythonText(before, lines[: skipped - 1] or (1,))
        if name == "script" and (skips := _SKIPPING.match(arguments)):
            name, arguments, body = "bash", "", skips[1].strip()
        name = {"!": "bash", "sh": "bash", "file": "writefile"}.get(name, name)
        call = f"get_ipython().run_cell_magic({name!r}, {arguments.strip()!r}, {body!r})\n"
        return PythonText(before + call, (*lines[: skipped - 1], skipped))
    if not _MAYBE_MAGIC.search(source) and not _INDENTED.match(source):
        return PythonText(source, lines)
    return _transform(source)


def runs_nothing(arguments: str) -> bool:
    """Return whether %%run_ddp with these arguments only shows something: the script, or its options."""
    return any(
        word == "-h" or (len(word) > 3 and any(option.startswith(word) for option in _RUNS_NOTHING))
        for word in arguments.split()  # argparse takes the beginning of an option for the whole
    )


def _transform(source: str) -> PythonText:
    from IPython.core.inputtransformer2 import TRANSFORM_LOOP_LIMIT, TransformerManager

    magics = [number for number, line in enumerate(source.split("\n"), 1) if _MAGIC_LINE.match(line)]
    if len(magics) > TRANSFORM_LOOP_LIMIT:
        raise SyntaxError(_TOO_MANY, ("cell", magics[TRANSFORM_LOOP_LIMIT], None, None))
    if first := _INDENTED.match(source):  # as IPython did until it took the indentation that all lines have
        source = re.sub(f"^{first[1]}", "", source, flags=re.MULTILINE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # IPython warns of line ends that it made itself
            text: str = TransformerManager().transform_cell(source)
    except RuntimeError:
        raise SyntaxError(_TOO_MANY, ("cell", 1, None, None)) from None
    except tokenize.TokenError as error:
        raise SyntaxError(error.args[0], ("cell", error.args[1][0], None, None)) from None
    lines = text.removesuffix("\n").split("\n")
    starts = _starts(source.split("\n"))
    if len(starts) != len(lines):  # a string that looks like a continued magic, say
        starts = align([line.strip() for line in source.split("\n")], [line.strip() for line in lines])
    codes = [_as_code(line) for line in lines]
    if codes[-1] != lines[-1] and re.search(r"run_line_magic\(.(?:timeit|prun)\b", lines[-1]):
        codes[-1] += ";"  # at the end of a cell, too, they show no value
    return PythonText("".join(f"{code}\n" for code in codes), tuple(starts))


def _starts(source: list[str]) -> list[int]:
    """Return the line (from 1) that each line of the transformed cell starts on.

    IPython drops blank lines at the top and makes one line of a magic that is continued with a backslash.
    """
    starts: list[int] = []
    inside = False
    for number, line in enumerate(source, start=1):
        if not inside and (starts or line.strip()):
            starts.append(number)
            inside = bool(_MAGIC_LINE.match(line))
        inside = inside and line.endswith("\\")
    if starts and not source[-1]:
        starts.pop()  # the text ends with a line break; nothing follows it
    return starts


def expansions(command: str) -> list[Expansion]:
    """Split a command at its ``{...}`` and ``$name``, as IPython's own formatter does."""
    if not any(sign in command for sign in "{}$"):
        return [Expansion(command, None, None)]
    from IPython.utils.text import DollarFormatter

    parts = []
    try:
        for text, field, slice_end, conversion in DollarFormatter().parse(command):
            expression = f"{field}:{slice_end}" if slice_end else field
            parts.append(Expansion(text, expression, conversion))
    except ValueError:  # lone braces: IPython leaves the command alone
        return [Expansion(command, None, None)]
    return parts


def _as_code(line: str) -> str:
    """Return the statement that a ``%time`` line times, and the imports of ``%pylab`` and ``%aimport``."""
    if (imports := _AIMPORT.match(line)) is not None:
        return f"{imports[1]}import {', '.join(re.split('[, ]+', imports[2]))}"
    if (pylab := _PYLAB.match(line)) is not None:
        return pylab[1] + "; ".join(_PYLAB_IMPORTS[: 3 if "--no-import-all" in line else None])
    match = _TIMED.match(line)
    if match is None or (match["target"] and match["magic"] != "time"):  # %timeit gives figures
        return line
    code = _OPTIONS.sub("", ast.literal_eval(match["code"]))
    statement = f"{match['target'] or ''}{code}".strip()
    try:
        compiled = ast.parse(statement)
    except (SyntaxError, ValueError):
        return line
    return match["indent"] + statement if compiled.body else line


def align(before: list[str], after: list[str]) -> list[int]:
    """Return the lines of ``before`` (from 1) that the lines of ``after`` came from."""
    lines: list[int] = []
    for _, b1, b2, a1, a2 in LineMatcher(before, after).get_opcodes():
        lines += [min(b1 + offset, max(b2 - 1, 0)) + 1 for offset in range(a2 - a1)]
    return lines
