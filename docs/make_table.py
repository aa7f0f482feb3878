"""Write what is made from the code: rules, commands with options, exit codes, the gallery, and the README's diff.

    python docs/make_table.py [--check]

With --check nothing is written; the exit code is 1 when a page is out of date. `make docs` writes them.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import sys
from pathlib import Path

import click

from nb2ddp import errors
from nb2ddp.cli import main as command_line
from nb2ddp.cli.rules import page_of
from nb2ddp.conversion.pipeline import convert_notebook
from nb2ddp.jupyter.arguments import ARGUMENTS
from nb2ddp.jupyter.magic import DDPMagics
from nb2ddp.options import Setting, settings
from nb2ddp.rules import BALANCED_RULES, RULES
from nb2ddp.source.notebook import Cell, Notebook
from nb2ddp.targets import TARGETS

DOCS = Path(__file__).parent
ROOT = DOCS.parent
MADE = "<!-- Made from the code by docs/make_table.py; `make docs` makes it again. -->"

HANDLED = f"""\
# What is handled, and what is declined

{MADE}

Every rule, in the order in which rules are applied. `nb2ddp rules RULE` shows a before and after.

| rule | what it does | declines |
|---|---|---|
"""
HANDLED_FOOT = """
A declined notebook is told the cell, the line and the reason, and nothing is written for it. Apart from the
rules, a notebook is declined when a cell is no valid Python, when an expression is nested too deeply to be
read, when its kernel speaks another language, and when `await` stands outside a function. A notebook without
training is told what is missing in it: the Trainer, its `train()`, the loop, or a library that trains.

With `--strategy balanced` one process holds the model, spread over all GPUs; these rules are applied then:
"""

COMMANDS = f"""\
# Commands and options

{MADE}

`nb2ddp COMMAND --help` prints the same. [Exit codes](exit_codes.md) are a page of their own.

## Options of a conversion

They are the same for `nb2ddp convert`, for `%run_ddp` and `%%run_ddp` in a notebook, and as keywords of
`nb2ddp.convert(path, nproc=4, batch="scale")`, which also takes `options=nb2ddp.Options(...)`.

| option | keyword | values | default | what it does |
|---|---|---|---|---|
"""
COMMANDS_FOOT = """
## Defaults from a file

The nearest `nb2ddp.toml`, or `[tool.nb2ddp]` in a `pyproject.toml`, of the working folder and the folders
above it gives defaults for these options; the command line goes before it. A key that is no option is an
error.

```toml
[tool.nb2ddp]
nproc = 4
gpu-memory = 24
```

## Completion in the shell

One line in the shell's start file completes commands and options:

| shell | file | line |
|---|---|---|
| bash | `~/.bashrc` | `eval "$(_NB2DDP_COMPLETE=bash_source nb2ddp)"` |
| zsh | `~/.zshrc` | `eval "$(_NB2DDP_COMPLETE=zsh_source nb2ddp)"` |
| fish | `~/.config/fish/completions/nb2ddp.fish` | `_NB2DDP_COMPLETE=fish_source nb2ddp \\| source` |

## What `convert` prints

| `--output-format` | what | where |
|---|---|---|
| `full` | a heading, changes by cell, the batch, notes, declines, next steps; of a folder, a table | stderr |
| `concise` | one line a change, never wrapped: `NAME: cell C, line L: WHY [RULE]` | stdout |
| `json` | one document, or a list of them for several notebooks | stdout |
| `github` | annotations for GitHub Actions; the cell and its line stand in the message | stdout |

Colours appear only on a terminal, and not where `NO_COLOR` is set. `-q` prints only what was declined, what
failed and what does not fit; `-v` prints each change with the notebook's line.
"""

MAGIC = """
## `%run_ddp` and `%%run_ddp` in a notebook

{about}

Besides the options of a conversion:

| argument | what it does |
|---|---|
"""

EXIT_CODES = f"""\
# Exit codes

{MADE}

Every command ends with 0 when it has done what was asked, with 2 when the command line or a file with
defaults is wrong, and with 130 when it was interrupted with Ctrl-C.

| command | code | meaning |
|---|---|---|
| `convert` | 1 | something was declined, or failed |
| `run` | the script's | the code of the rank that failed first; 1 when the run could not be started |
| `doctor` | 1 | something fails, or there is nothing to check; warnings give 0 |
| `rehearse` | 1 | something that was measured is not as it should be, or the notebook cannot be read |
| `rehearse` | 3 | this cannot be rehearsed |
| `prove` | 1 | the script trains another run than its notebook: a point of the promise does not hold |
| `prove` | 3 | this cannot be judged: a file is missing, the notebook does not train here, a GPU is needed |
| `prove` | 4 | the script fails, or never trains |
| `prove` | 5 | the script hangs, and was ended |
| `prove` | 6 | the random order of the samples is another one, and nothing else |

`%run_ddp` and `%%run_ddp` raise `RunFailedError`, with the traceback of the rank that failed first, and
`RunInterruptedError` where the run was stopped.

Errors end with the code of their class (`nb2ddp.errors`):

| code | error | meaning |
|---|---|---|
"""


def sentences(source: str, kind: str) -> list[str]:
    """Return the texts that the calls ``Decline("...")`` of a rule are given, with "…" for what is filled in."""
    nodes = list(ast.walk(ast.parse(source)))
    bound = [node for node in nodes if isinstance(node, ast.Assign | ast.AugAssign)]
    texts = []
    for call in nodes:
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == kind
            and call.args
        ):
            texts.append(text(call.args[0], [node for node in bound if node.lineno < call.lineno]))
    return [found for found in dict.fromkeys(texts) if found]


def text(node: ast.expr, bound: list[ast.Assign | ast.AugAssign]) -> str:
    """Return a text, also by its name: what was bound to that last, and what was added."""
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.JoinedStr(values=parts):
            return "".join(text(part, bound) or "…" for part in parts)
        case ast.FormattedValue(value=value):
            return text(value, bound)
        case ast.Name(id=name):
            found = ""
            for one in sorted(bound, key=lambda b: b.lineno):
                targets = one.targets if isinstance(one, ast.Assign) else [one.target]
                if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                    added = text(one.value, [other for other in bound if other.lineno < one.lineno])
                    found = added if isinstance(one, ast.Assign) else found + added
            return found
    return ""


def row(*cells: object) -> str:
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |\n".replace("\n ", " ")


def handled() -> str:
    rows = []
    for rule in RULES:
        module = inspect.getmodule(rule.find)
        assert module is not None
        declines = "<br>".join(sentences(inspect.getsource(module), "Decline"))
        rows.append(row(f"`{rule.name}`", page_of(rule.doc).summary, declines))
    balanced = ", ".join(f"`{rule.name}`" for rule in BALANCED_RULES)
    return f"{HANDLED}{''.join(rows)}{HANDLED_FOOT}{balanced}.\n"


def commands() -> str:
    page = COMMANDS + "".join(map(setting_row, settings())) + COMMANDS_FOOT
    for name, command in command_line.commands.items():
        page += f"\n## `nb2ddp {name}`\n\n{about(command)}\n"
        own = [p for p in command.params if isinstance(p, click.Option) and not is_setting(name, p)]
        if name == "convert":
            page += "\nBesides the options of a conversion:\n"
        if own:
            page += "\n| option | what it does |\n|---|---|\n" + "".join(map(option_row, own))
    targets = ", ".join(f"`{name}`" for name in TARGETS)
    page = page.replace("## `nb2ddp emit`\n", f"## `nb2ddp emit`\n\nTargets: {targets}.\n")
    return page + magic()


def magic() -> str:
    """Return what is told of the magic: its docstring up to the examples, and the arguments of its own."""
    told = inspect.cleandoc(DDPMagics.run_ddp.__doc__ or "").partition("\nExamples\n")[0]
    usage = ("::", " ")  # IPython puts it before the prose
    prose = "\n\n".join(text for text in told.strip().split("\n\n") if not text.startswith(usage))
    rows = []
    for argument in ARGUMENTS:
        if argument.args[0] in {setting.flag for setting in settings()} - {"--nproc"}:
            continue
        value = argument.kwds.get("metavar", "")
        names = ", ".join(argument.args) + f" {value}".rstrip()
        rows.append(row(f"`{names}`", argument.kwds["help"]))
    return MAGIC.format(about=prose) + "".join(rows)


def setting_row(setting: Setting) -> str:
    values = (
        " or ".join(f"`{choice}`" for choice in setting.choices)
        or {
            int: "a whole number",
            float: "a number",
            str: "a text",
            bool: "a flag",
        }[setting.type]
    )
    default = setting.otherwise or ("none" if setting.default is None else f"`{setting.default}`")
    return row(f"`{setting.flag}`", f"`{setting.name}`", values, default, setting.help)


def is_setting(command: str, parameter: click.Parameter) -> bool:
    return command == "convert" and parameter.name in {setting.name for setting in settings()}


def about(command: click.Command) -> str:
    """Return a command's help as Markdown: paragraphs, and its examples as code."""
    prose, _, examples = inspect.cleandoc(command.help or "").partition("\b\nExample:")
    example, _, rest = inspect.cleandoc(f"\n{examples}").partition("\n\n")
    return f"{prose.strip()}\n\n```\n{example.strip()}\n```" + (f"\n\n{rest.strip()}" if rest.strip() else "")


def option_row(option: click.Option) -> str:
    """Return a row of the same text with every version of click."""
    names = ", ".join([*option.opts, *option.secondary_opts])
    if isinstance(option.type, click.Choice):
        names += f" [{'|'.join(map(str, option.type.choices))}]"
    elif not option.is_flag:
        names += f" {option.metavar or option.type.name.partition(' ')[0].upper()}"
    default = f" [default: {option.default}]" if option.show_default else ""
    return row(f"`{names}`", " ".join(f"{option.help}{default}".split()))


def exit_codes() -> str:
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind)]
    ours = [kind for kind in kinds if issubclass(kind, errors.Nb2ddpError) and kind is not errors.Nb2ddpError]
    rows = [row(kind.exit_code, f"`{kind.__name__}`", summary(kind)) for kind in ours]
    order = [index for _, index in sorted((kind.exit_code, index) for index, kind in enumerate(ours))]
    return EXIT_CODES + "".join(rows[index] for index in order)


def summary(kind: type) -> str:
    return inspect.cleandoc(kind.__doc__ or "").splitlines()[0]


def gallery() -> str:
    import make_gallery  # converts the samples

    return make_gallery.page()


EXAMPLE = """\
data = load_dataset("yahma/alpaca-cleaned", split="train")
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B-bnb-4bit")
model = FastLanguageModel.get_peft_model(model)
args = SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4)
trainer = SFTTrainer(model, args, train_dataset=data)
trainer.train()
model.save_pretrained("lora")
"""
_IMPORTS = """\
from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
from datasets import load_dataset
"""
_DIFF = re.compile(r"(<!-- diff: .*?-->\n).*?(<!-- end of diff -->)", re.DOTALL)


def readme() -> str:
    """Return the README with the diff of its example, as a conversion makes it."""
    cells = Cell("code", _IMPORTS, 1), Cell("code", EXAMPLE, 2)
    script = convert_notebook(Notebook(Path("finetune.ipynb"), cells, "python")).script
    assert script is not None
    head = [
        line.strip()
        for line in script.text.splitlines()
        if re.search(r"import ddp_support|ddp\.init\(", line)
    ]
    cell = [line.text for line in script.lines if line.cell == 2]
    differ = difflib.SequenceMatcher(None, old := EXAMPLE.splitlines(), [*head, "", *cell], autojunk=False)
    new = [*head, "", *cell]
    lines: list[str] = []
    for kind, a, b, c, d in differ.get_opcodes():
        lines += [f" {line}" for line in old[a:b]] if kind == "equal" else [f"-{line}" for line in old[a:b]]
        lines += [f"+{line}".rstrip("+") for line in new[c:d]] if kind != "equal" else []
    text = "\n".join(lines)
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    return _DIFF.sub(lambda found: f"{found[1]}```diff\n{text}\n```\n{found[2]}", page)


PAGES = {
    DOCS / "handled.md": handled,
    DOCS / "commands.md": commands,
    DOCS / "exit_codes.md": exit_codes,
    DOCS / "gallery.md": gallery,
    ROOT / "README.md": readme,
}


def main() -> int:
    made = {path: make() for path, make in PAGES.items()}
    if "--check" in sys.argv[1:]:
        return int(any(not path.exists() or path.read_text() != page for path, page in made.items()))
    for path, page in made.items():
        path.write_text(page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
