"""Every kind of token is found in every place, in time that grows with the text."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.secrets import Secret, masker, secrets_in_file, secrets_in_notebook, secrets_in_text
from nb2ddp.secrets.rules import all_rules, entropy_of
from tests.support.tokens import ALNUM, HEX, LOWER, TOKENS, some

Place = Callable[[str], tuple[dict[str, Any], str]]


def code(source: str, outputs: list[Any] | None = None) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "source": source, "outputs": outputs or []}


PLACES: dict[str, Place] = {
    "code": lambda text: (code(f"x = 1\n{text}\ny = 2"), "cell 2"),
    "lines": lambda text: (code("") | {"source": ["x = 1\n", *text.splitlines(keepends=True)]}, "cell 2"),
    "comment": lambda text: (code(f"pass\n# {text}"), "cell 2"),
    "markdown": lambda text: ({"cell_type": "markdown", "source": f"Use\n\n{text}"}, "the text after cell 1"),
    "raw": lambda text: ({"cell_type": "raw", "source": f"\n{text}"}, "the text after cell 1"),
    "f-string": lambda text: (code(f'pass\nprint(f"run {{x}}: {text}")'), "cell 2"),
    "dict value": lambda text: (code(f'config = {{"lr": 1e-4,\n "x": "{text}"}}'), "cell 2"),
    "call": lambda text: (code(f'client = Client(\n    "{text}",\n    timeout=3)'), "cell 2"),
    "environ": lambda text: (code(f'import os\nos.environ["X"] = "{text}"'), "cell 2"),
    "text block": lambda text: (code(f'config = """\nlr: 1\nx: {text}\n"""'), "cell 2"),
    "bytes": lambda text: (code(f"x = 1\ny = rb'{text}'"), "cell 2"),
    "shell line": lambda text: (code(f"x = 1\n!curl -H 'X: {text}' https://a.org"), "cell 2"),
    "bash cell": lambda text: (code(f"%%bash\nset -e\nexport X={text}"), "cell 2"),
    "magic": lambda text: (code(f"x = 1\n%env X={text}"), "cell 2"),
    "tabs": lambda text: (code(f"if x:\n\ty =\t'{text}'\t# z"), "cell 2"),
    "link": lambda text: (
        {"cell_type": "markdown", "source": f"[a]\n(https://a.org/?x={text})"},
        "the text after cell 1",
    ),
    "table": lambda text: (
        {"cell_type": "markdown", "source": f"| a |\n|--|\n| `{text}` |"},
        "the text after cell 1",
    ),
    "writefile": lambda text: (code(f"%%writefile .env\nA=1\n{text}\n"), "cell 2"),
    "stream": lambda text: (
        code("x", [{"output_type": "stream", "text": ["ok\n", *text.splitlines(keepends=True)]}]),
        "the output of cell 2",
    ),
    "coloured": lambda text: (
        code("x", [{"output_type": "stream", "text": f"ok\n{text[:-9]}\x1b[31m{text[-9:]}\x1b[0m"}]),
        "the output of cell 2",
    ),
    "cell metadata": lambda text: (code("x") | {"metadata": {"form": [text]}}, "the metadata of cell 2"),
    "html": lambda text: (
        code("x", [{"output_type": "display_data", "data": {"text/html": f"<b>\n{text}\n</b>"}}]),
        "the output of cell 2",
    ),
    "traceback": lambda text: (
        code("x", [{"output_type": "error", "traceback": [f"Error\n{text}"]}]),
        "the output of cell 2",
    ),
}


def notebook(*cells: dict[str, Any]) -> dict[str, Any]:
    return {"cells": [code("print(1)"), *cells], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def test_every_rule_has_its_token() -> None:
    assert {rule.id for rule in all_rules()} == TOKENS.keys()
    for rule in all_rules():
        assert rule.keywords
        assert all(word == word.lower() for word in rule.keywords)


OWN_LINE = {"code", "lines", "markdown", "raw", "writefile", "stream", "traceback", "cell metadata"}


@pytest.mark.parametrize("place", PLACES)
def test_each_token_is_found_in_each_place(place: str) -> None:
    for rule, (token, around) in TOKENS.items():
        if rule in ("environment-secret", "setting-secret") and place not in OWN_LINE:
            continue  # a line of its own is what makes it one
        cell, where = PLACES[place](around.format(token))
        found = secrets_in_notebook(notebook(cell), "nb.ipynb")
        mine = [secret for secret in found if secret.place == f"nb.ipynb: {where}"]
        assert mine, (rule, place)
        assert {secret.place for secret in found} == {f"nb.ipynb: {where}"}
        assert rule in {secret.rule for secret in mine} or rule in ("twilio-key", "modal-token"), mine
        text = cell["source"] if where.startswith(("cell", "the text")) else None
        if isinstance(text, str):
            lines = [n for n, line in enumerate(text.splitlines(), 1) if token in line]
            assert lines[0] in {secret.line for secret in mine}, (rule, place)
        for secret in found:
            assert token[8:] not in repr(secret) + str(secret) or rule == "private-key", "no value is kept"


def test_a_token_in_the_metadata_of_the_notebook() -> None:
    token = TOKENS["huggingface-token"][0]
    state = {"model_name": "TextModel", "state": {"value": token}}
    widgets = {"application/vnd.jupyter.widget-state+json": {"state": {"a": state}}}
    (secret,) = secrets_in_notebook(notebook() | {"metadata": {"widgets": widgets}})
    assert secret.place == "the notebook's metadata"


def test_a_token_in_base64() -> None:
    token = TOKENS["huggingface-token"][0]
    encoded = base64.b64encode(token.encode()).decode()
    (secret,) = secrets_in_text(f"import base64\ntoken = base64.b64decode('{encoded}').decode()", "x.py")
    assert (secret.rule, secret.line) == ("huggingface-token", 2)
    assert secrets_in_text("x = b64decode('" + "A" * 17 + "')", "x.py") == []


FORMS = [
    "def f(api_key='{}'): pass",
    "def f(*, api_key: str | None = '{}'): pass",
    "class Settings:\n    auth_token: str = '{}'",
    "if (api_key := '{}'):\n    pass",
    "token = '{}'  #@param {{type:\"string\"}}",
    "openai.api_key = '{}'",
    "config = dict(secret_key='{}')",
    "os.environ.setdefault('MY_API_KEY', '{}')",
    "key = os.getenv('MY_API_KEY', '{}')",
    "os.environ.update({{'MY_API_KEY': '{}'}})",
    "os.putenv('MY_SECRET_TOKEN', '{}')",
    "%set_env MY_API_KEY={}",
    "!export MY_API_KEY={}",
    "!tool login --token={} --yes",
    "!mysql -u ada --password={}",
    "!python train.py --hub_token {}",
    "%%writefile config.yaml\nlr: 1\napi_key: {}",
    "%%writefile config.ini\n[api]\npassword = {}",
    "%%writefile .env\nMY_API_KEY={}",
]


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_by_its_name(form: str) -> None:
    value = TOKENS["named-secret"][0]
    found = secrets_in_notebook(notebook(code(form.format(value))))
    assert len(found) == 1, (form, found)
    assert value not in str(found)


@pytest.mark.parametrize("letters", [HEX, LOWER, ALNUM])
def test_nearly_every_key_of_32_characters_is_found(letters: str) -> None:
    dice = random.Random(1)
    keys = ["".join(dice.choices(letters, k=32)) for _ in range(300)]
    missed = [key for key in keys if not secrets_in_text(f'my_api_key = "{key}"', "x.py")]
    assert len(missed) < 10, missed


PARTS = {
    "adjacent": '"{}" "{}"',
    "plus": '"{}" + "{}"',
    "single quotes": "'{}' + '{}'",
    "backslash": '"{}" \\\n    "{}"',
    "brackets": '(\n    "{}"\n    "{}"\n)',
    "plus at the end": '(\n    "{}" +\n    "{}"\n)',
    "plus at the start": '(\n    "{}"\n    + "{}"\n)',
    "prefixes": 'r"{}" f"{}"',
    "join": '"".join(["{}", "{}"])',
}


@pytest.mark.parametrize("form", PARTS)
@pytest.mark.parametrize("rule", ["huggingface-token", "openai-key", "github-token", "aws-access-key"])
def test_strings_in_parts(rule: str, form: str) -> None:
    token = TOKENS[rule][0]
    for cut in (3, 4, len(token) // 2, len(token) - 3):
        text = "a = 1\nb = 2\ntoken = " + PARTS[form].format(token[:cut], token[cut:])
        found = secrets_in_text(text, "x.py")
        assert [secret.rule for secret in found] == [rule], (text, found)
        assert found[0].line in (3, 4)


@pytest.mark.parametrize(
    "token",
    [
        "AQ." + "Ab8" + some(47, f"{ALNUM}-_"),
        "IQ." + some(50),
        "hf_" + "oauth_" + "eyJ" + some(60) + "." + some(40),
        "hf_" + "jwt_" + "eyJ" + some(60) + "." + some(40),
        "sk-" + some(32, HEX),
    ],
)
def test_other_forms_of_a_kind(token: str) -> None:
    (found,) = secrets_in_text(f'client = Client("{token}")', "x.py")
    assert masker([token])(f"key: {token}").count(token[12:]) == 0
    assert found.rule in ("google-api-key", "huggingface-token", "openai-key")


TOKEN = TOKENS["huggingface-token"][0]
A, B = TOKEN[:4], TOKEN[4:]
FOURS = [TOKEN[n : n + 4] for n in range(0, len(TOKEN), 4)]
BUILT = [
    f't = "%s%s" % ("{A}", "{B}")',
    f't = "{A}%s" % "{B}"',
    f't = "%(a)s%(b)s" % {{"a": "{A}", "b": "{B}"}}',
    f't = "{{}}{{}}".format("{A}", "{B}")',
    f't = "{{1}}{{0}}".format("{B}", "{A}")',
    f't = "{{a}}{{b}}".format(a="{A}", b="{B}")',
    f'a = "{B}"\nt = f"{A}{{a}}"',
    f't = "{A}"\nt += "{B[:9]}"\nt += "{B[9:]}"',
    f'parts = ["{A}"]\nparts.append("{B}")\nt = "".join(parts)',
    f"t = ''\nfor c in {FOURS!r}:\n    t += c",
    f"t = ''.join(c for c in {FOURS!r})",
    f"t = {' + '.join(map(repr, TOKEN))}",
    f't = "{TOKEN[::-1]}"[::-1]',
    f't = "xx{TOKEN}yy"[2:-2]',
    f't = bytes.fromhex("{TOKEN.encode().hex()}").decode()',
    f't = base64.b64decode("{base64.b64encode(TOKEN.encode()).decode()}").decode()',
    f"t = '{''.join(f'{chr(92)}x{ord(c):02x}' for c in TOKEN)}'",
    f't = "{A}-X-{B}".replace("-X-", "")',
    f'd = {{"a": "{A}"}}\nt = d["a"] + "{B}"',
    f'class C:\n    def __init__(self):\n        self.a = "{A}"\n        self.t = self.a + "{B}"',
    f'def join(a, b):\n    return a + b\nt = join("{A}", "{B}")',
    f't = reduce(lambda a, b: a + b, ["{A}", "{B}"])',
    f't = operator.add("{A}", "{B}")',
    f't = "{A}".__add__("{B}")',
    f'!ls\n%cd x\na, b = "{A}", "{B}"\nt = a + b',
    f'x = = 1\na = "{A}"\nt = a + "{B}"',
    f'type X = int\nx = f"{{d["a"]}}"\na = "{A}"\nt = a + "{B}"',
    f'os.environ["X"] = "{A}"\nos.environ["X"] += "{B}"',
    f"t = ''.join(map(chr, {list(map(ord, TOKEN))}))",
]


@pytest.mark.parametrize("form", BUILT, ids=range(len(BUILT)))
def test_a_token_that_code_puts_together_is_found_and_masked(form: str) -> None:
    found = secrets_in_notebook(notebook(code("import os"), code(form)))
    assert {secret.rule for secret in found} == {"huggingface-token"}, form
    masked = masker(["import os", form])(form)
    left = [TOKEN[n : n + 4] for n in range(len(TOKEN)) if TOKEN[n : n + 4] in masked]
    assert "map(chr" in form or not [part for part in left if len(part) == 4], masked


@pytest.mark.parametrize("form", BUILT, ids=range(len(BUILT)))
def test_parts_in_several_cells_are_followed(form: str) -> None:
    """Each line is a cell of its own, where it can be."""
    if "\n " in form:
        return
    cells = form.split("\n")
    assert secrets_in_notebook(notebook(*map(code, cells))), form


def test_what_is_not_known_is_a_hole() -> None:
    text = f'url = f"https://x.org/{{name}}?token={A}{{tail}}"\ntail = "{B}"\nh = {{"X": "a " + key + "{TOKEN[:3]}"}}'
    assert secrets_in_text(text, "x.py") == []
    assert secrets_in_text(f'h = "Bearer " + unknown + "{A}" + "{B}"', "x.py")


@pytest.mark.parametrize(
    "bomb",
    [
        "x = 'a' * 10**9",
        "x = 'a' * 999999999",
        "x = '%999999999s' % 'a'",
        "x = '{:>999999999}'.format('a')",
        "x = ('a' * 90000).replace('a', 'a' * 90000)",
        "x = 'ab'\n" + "x = x + x\n" * 60,
        "x = ['a', 'b']\n" + "x = x + x\n" * 60,
        "for a in 'x' * 300:\n for b in 'x' * 300:\n  for c in 'x' * 300:\n   y = a + b + c",
        "def f(a):\n    return f(a + 'x') + f(a + 'y')\nf('a')",
        "x = " + " + ".join(["'ab'"] * 20_000),
        "x = " + "(" * 5000,
        "x = ''\n" + "x += 'ab'\n" * 20_000,
        "l = ['a']\nl.append(l)\nx = ''.join(l)",
        "d = {}\nd['a'] = d\nx = d['a']['a'] + 'b'",
        "x = " + "'a'.replace('a', " * 90 + "'b'" + ")" * 90,
        "x = " + "[a for a in " * 60 + "'b'" + "]" * 60,
        "x = 'ab'\n" + "x = x + x\n" * 15 + f"y = ''.join([{'x, ' * 9000}])",
    ],
    ids=range(17),
)
def test_what_is_put_together_has_its_limits(bomb: str) -> None:
    start = time.process_time()
    found = secrets_in_text(f'{bomb}\ntoken = "{A}" + "{B}"', "x.py")
    assert time.process_time() - start < 20
    assert bomb.endswith("(") or found, "what follows is still read"


@pytest.mark.parametrize("separate", [False, True])
def test_a_wandb_key_far_from_the_word(separate: bool) -> None:
    key = TOKENS["wandb-key"][0]
    first, second = "import wandb", f'\nKEY_OF_MINE = "{key}"\n'
    cells = [code(first), code(second)] if separate else [code(first + "\n" * 30 + second)]
    (secret,) = secrets_in_notebook(notebook(*cells))
    assert secret.rule == "wandb-key"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_files_of_any_encoding(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "nb.ipynb"
    cell = code(f"# é\ntoken = '{TOKENS['huggingface-token'][0]}'")
    file.write_bytes(json.dumps(notebook(cell), ensure_ascii=False).encode(encoding))
    (secret,) = secrets_in_file(file)
    assert (secret.rule, secret.line) == ("huggingface-token", 2)


def test_fingerprints() -> None:
    token = TOKENS["huggingface-token"][0]
    one, again, moved = (
        secrets_in_text(text, place)[0]
        for text, place in ((token, "cell 1"), (f"\n\n{token}", "cell 1"), (token, "cell 2"))
    )
    assert one.fingerprint == again.fingerprint == moved.fingerprint, "it is the value's, wherever it stands"
    digest = hashlib.sha256(f"nb2ddp\0{token}".encode()).hexdigest()
    assert one.fingerprint == digest[:12]
    assert str(one) == f"cell 1, line 1: Hugging Face token (hf_…) [{digest[:12]}]"
    (other,) = secrets_in_text(TOKENS["github-token"][0], "cell 1")
    assert other.fingerprint != one.fingerprint


def test_nothing_of_a_password_is_shown() -> None:
    for text in (
        'my_password = "Summer-9aB3xK7qLm2ZpR5t"',
        "postgresql://ada:Summer-9aB3xK7qLm2ZpR5t@db.lab.org/x",
    ):
        (found,) = secrets_in_text(text, "x.py")
        assert found.start == ""
        assert "Summer" not in str(found)


UNITS = [
    '"',
    "' ",
    '" + ',
    "''.join([",
    '"a",',
    "a",
    "A",
    " ",
    "\n",
    "sk-",
    "token=",
    'secret="',
    "a://",
    "a:",
    "eyJa",
]
UNITS += [
    "AKIA" + "A" * 16 + " ",
    "wandb login ",
    "%env ",
    "authorization: bearer ",
    "M",
    "1",
    "_",
    "-",
    ".",
    "kaggle key ",
]


@pytest.mark.parametrize("unit", UNITS)
def test_the_time_grows_with_the_text(unit: str) -> None:
    words = " ".join(f"{' '.join(rule.keywords)} {rule.near or ''}" for rule in all_rules())

    def seconds(size: int) -> float:
        text = unit * (size // len(unit)) + "\n" + words
        start = time.process_time()
        secrets_in_text(text, "x.py")
        return time.process_time() - start

    # Other processes may slow down one of the two, so each pair is measured at one time.
    assert any(seconds(100_000) < 8 * max(seconds(25_000), 0.02) for _ in range(3))


def test_entropy() -> None:
    assert entropy_of("") == 0
    assert entropy_of("aaaa") == 0
    assert entropy_of("abcd") == 2


def test_a_secret_keeps_no_value() -> None:
    assert "value" not in Secret.__match_args__
