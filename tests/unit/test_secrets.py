"""Secrets: every kind of token in every place, and what must stay silent.

The tokens are put together here, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.secrets import Secret, secrets_in_file, secrets_in_notebook, secrets_in_text
from nb2ddp.secrets.rules import all_rules, entropy_of

HEX, LOWER, ALNUM = (
    "0123456789abcdef",
    string.ascii_lowercase + string.digits,
    string.ascii_letters + string.digits,
)
UPPER32 = string.ascii_uppercase + "234567"
draw = random.Random(16)


def some(count: int, letters: str = ALNUM) -> str:
    """Random characters, as a service draws them."""
    while True:
        text = "".join(draw.choice(letters) for _ in range(count))
        if count < 16 or len(set(text)) >= 10:
            return text


UUID = "-".join(some(n, HEX) for n in (8, 4, 4, 4, 12))
# rule: the token, and what stands around it ({} is the token) where it cannot be known by its form
TOKENS: dict[str, tuple[str, str]] = {
    "huggingface-token": ("hf_" + some(34), "{}"),
    "kaggle-token": ("KGAT_" + some(32, HEX), "{}"),
    "kaggle-key": (some(32, HEX), 'kaggle = {{"username": "ada", "key": "{}"}}'),
    "wandb-token": ("wandb_v1_" + some(77), "{}"),
    "openai-key": ("sk-" + "proj-" + some(48), "{}"),
    "anthropic-key": ("sk-" + "ant-api03-" + some(93) + "AA", "{}"),
    "openrouter-key": ("sk-" + "or-v1-" + some(64, HEX), "{}"),
    "langfuse-key": ("sk-" + "lf-" + UUID, "{}"),
    "langsmith-key": ("lsv2_" + "pt_" + some(32, HEX) + "_" + some(10, HEX), "{}"),
    "groq-key": ("gsk_" + some(52), "{}"),
    "replicate-token": ("r8_" + some(37), "{}"),
    "together-key": ("tgp_" + "v1_" + some(43), "{}"),
    "fireworks-key": ("fw_" + some(24), "{}"),
    "perplexity-key": ("pplx-" + some(48), "{}"),
    "xai-key": ("xai-" + some(80), "{}"),
    "nvidia-key": ("nvapi-" + some(64), "{}"),
    "tavily-key": ("tvly-" + "dev-" + some(32), "{}"),
    "pinecone-key": ("pcsk_" + some(6) + "_" + some(60), "{}"),
    "jina-key": ("jina_" + some(60), "{}"),
    "elevenlabs-key": ("sk_" + some(48, HEX), "{}"),
    "runpod-key": ("rpa_" + some(42, UPPER32), "{}"),
    "modal-token": ("as-" + some(22), 'modal.token("{}")'),
    "anyscale-key": ("esecret_" + some(26, LOWER), "{}"),
    "databricks-token": ("dapi" + some(32, HEX), "{}"),
    "ngrok-token": ("2" + some(26) + "_" + some(21), 'ngrok.set_auth_token("{}")'),
    "aws-access-key": ("AKIA" + some(16, UPPER32), "{}"),
    "aws-secret-key": (some(40, ALNUM + "/+"), 'aws_secret_access_key = "{}"'),
    "google-api-key": ("AIza" + some(35), "{}"),
    "google-oauth": ("GOCSPX-" + some(28), "{}"),
    "azure-storage-key": (some(86, ALNUM + "/+") + "==", "AccountName=ada;AccountKey={};"),
    "azure-client-secret": (some(3) + "8" + "Q~" + some(34), '"{}"'),
    "digitalocean-token": ("dop_" + "v1_" + some(64, HEX), "{}"),
    "vault-token": ("hvs." + some(90), "{}"),
    "doppler-token": ("dp." + "pt." + some(43), "{}"),
    "supabase-key": ("sbp_" + some(40, HEX), "{}"),
    "planetscale-password": ("pscale_" + "pw_" + some(43), "{}"),
    "grafana-token": ("glsa_" + some(32) + "_" + some(8, HEX), "{}"),
    "sentry-token": ("sntrys_" + some(60), "{}"),
    "new-relic-key": ("NRAK-" + some(27, UPPER32), "{}"),
    "github-token": ("ghp_" + some(36), "{}"),
    "gitlab-token": ("glpat-" + some(20), "{}"),
    "pypi-token": ("pypi-" + "AgEIcHlwaS5vcmc" + some(60), "{}"),
    "npm-token": ("npm_" + some(36), "{}"),
    "docker-token": ("dckr_" + "pat_" + some(27), "{}"),
    "postman-key": ("PMAK-" + some(24, HEX) + "-" + some(34, HEX), "{}"),
    "slack-token": ("xoxb-" + some(12, string.digits) + "-" + some(24), "{}"),
    "slack-webhook": ("T" + some(8) + "/B" + some(9) + "/" + some(24), "https://hooks.slack.com/services/{}"),
    "discord-webhook": (some(68), "https://discord.com/api/webhooks/" + "1" * 18 + "/{}"),
    "discord-token": ("M" + some(25) + "." + some(6) + "." + some(30), 'discord_bot.run("{}")'),
    "telegram-token": (some(10, "123456789") + ":AA" + some(33), "{}"),
    "stripe-key": ("sk_" + "live_" + some(24), "{}"),
    "sendgrid-key": ("SG." + some(22) + "." + some(43), "{}"),
    "twilio-key": ("SK" + some(32, HEX), 'twilio = "{}"'),
    "mailgun-key": ("key-" + some(32, HEX), "{}"),
    "notion-token": ("ntn_" + some(46), "{}"),
    "linear-key": ("lin_" + "api_" + some(40), "{}"),
    "airtable-token": ("pat" + some(14) + "." + some(64, HEX), "{}"),
    "figma-token": ("figd_" + some(40), "{}"),
    "shopify-token": ("shpat_" + some(32, HEX), "{}"),
    "private-key": ("-----BEGIN " + "RSA PRIVATE KEY-----", "{}"),
    "json-web-token": ("eyJ" + some(30) + ".eyJ" + some(60) + "." + some(43), "{}"),
    "password-in-url": (some(14), "postgresql://ada:{}@db.lab.org/runs"),
    "authorization-header": (some(40), 'headers = {{"Authorization": "Bearer {}"}}'),
    "named-secret": (some(28), 'my_api_key = "{}"'),
    "environment-secret": (some(32), "%env SERVICE_TOKEN={}"),
}
TOKENS["wandb-key"] = (some(40, HEX), 'import wandb\nwandb.login(key="{}")')
key_id, secret_key = "AKIA" + some(16, UPPER32), some(40, ALNUM + "/+")
TOKENS["aws-secret-beside-key"] = (secret_key, f'boto3.Session("{key_id}", "{{}}")')

Place = Callable[[str], tuple[dict[str, Any], str]]


def code(source: str, outputs: list[Any] | None = None) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "source": source, "outputs": outputs or []}


PLACES: dict[str, Place] = {
    "code": lambda text: (code(f"x = 1\n{text}\ny = 2"), "cell 2"),
    "lines": lambda text: (code("") | {"source": ["x = 1\n", *text.splitlines(keepends=True)]}, "cell 2"),
    "comment": lambda text: (code(f"pass\n# {text}"), "cell 2"),
    "markdown": lambda text: ({"cell_type": "markdown", "source": f"Use\n\n{text}"}, "the text after cell 1"),
    "raw": lambda text: ({"cell_type": "raw", "source": f"\n{text}"}, "the text after cell 1"),
    "writefile": lambda text: (code(f"%%writefile .env\nA=1\n{text}\n"), "cell 2"),
    "stream": lambda text: (
        code("x", [{"output_type": "stream", "text": ["ok\n", *text.splitlines(keepends=True)]}]),
        "the output of cell 2",
    ),
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


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("rule", TOKENS)
def test_each_token_is_found_in_each_place(rule: str, place: str) -> None:
    token, around = TOKENS[rule]
    if rule == "environment-secret" and place in ("comment", "html"):
        return  # a line of its own is what makes it one
    cell, where = PLACES[place](around.format(token))
    found = secrets_in_notebook(notebook(cell), "nb.ipynb")
    mine = [secret for secret in found if secret.place == f"nb.ipynb: {where}"]
    assert mine, (rule, place)
    assert {secret.place for secret in found} == {f"nb.ipynb: {where}"}
    assert rule in {secret.rule for secret in mine} or rule in ("twilio-key", "modal-token"), mine
    text = cell["source"] if where.startswith(("cell", "the text")) else None
    if isinstance(text, str):
        lines = [n for n, line in enumerate(text.splitlines(), 1) if token in line]
        assert lines[0] in {secret.line for secret in mine}
    for secret in found:
        assert token[8:] not in repr(secret) + str(secret) or rule == "private-key", "no value is kept"


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
    assert one.fingerprint == again.fingerprint, "a line more does not change it"
    assert one.fingerprint != moved.fingerprint
    assert one.value_digest == moved.value_digest
    digest = hashlib.sha256(f"huggingface-token\0cell 1\0{token}".encode()).hexdigest()
    assert one.fingerprint == digest[:12]
    assert str(one) == f"cell 1, line 1: Hugging Face token (hf_…) [{digest[:12]}]"


# ---------------------------------------------------------------------------------------------------------
# What must stay silent

SILENT = [
    'revision = "' + some(40, HEX) + '"  # wandb',
    "!pip install git+https://github.com/wandb/wandb@" + some(40, HEX),
    "!pip install 'unsloth @ git+https://github.com/unslothai/unsloth@" + some(40, HEX) + "'",
    "import wandb\n!git checkout " + some(40, HEX),
    'import wandb\nCOMMIT = "' + some(40, HEX) + '"\nsha256 = "' + some(64, HEX) + '"',
    'md5 = "' + some(32, HEX) + '"',
    "sha256:" + some(64, HEX),
    'model_name = "unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit"',
    'FastModel.from_pretrained("unsloth/gemma-3-4b-it", token = "hf_...")',
    'token = "hf_' + "x" * 34 + '"',
    'token = "hf_' + "abcdefghijklmnopqrstuvwxyz" + '12345678"',
    'token = "YOUR_HF_TOKEN"',
    'api_key = "YOUR_API_KEY_GOES_HERE_12345"',
    'api_key = "<your key 123456>"',
    'OPENAI_API_KEY = "sk-..."',
    'OPENAI_API_KEY = "sk-' + "x" * 40 + '"',
    'os.environ["HF_TOKEN"] = userdata.get("HF_TOKEN")',
    'token = os.environ["HF_TOKEN"]',
    'token = os.getenv("WANDB_API_KEY", "")',
    'login(token=UserSecretsClient().get_secret("HF_TOKEN_FOR_MY_RUNS_2026"))',
    'os.environ["WANDB_API_KEY"] = getpass("Weights & Biases API key: ")',
    'os.environ["TOKENIZERS_PARALLELISM"] = "false"',
    "%env CUDA_VISIBLE_DEVICES=0,1",
    "%env HF_TOKEN=$token",
    "export HF_TOKEN=${HF_TOKEN}",
    'eos_token = "<|im_end|>"\npad_token = "<|finetune_right_pad_id|>"',
    'response_template_token = "### Response:"',
    'tokenizer.add_special_tokens({"additional_special_tokens": ["<|tool_call_start|>"]})',
    'key = "per_device_train_batch_size"\nmetric_key = "eval_loss_per_token_0"',
    'primary_key="conversation_id_2024"',
    "https://user:password@example.org/x",
    "https://${USER}:${PASSWORD}@github.com/a/b",
    "http://localhost:8080@x",
    "https://huggingface.co/datasets/a/b?key=value",
    "proxies = {'http': 'http://127.0.0.1:3128'}",
    'headers = {"Authorization": f"Bearer {token}"}',
    'headers = {"Authorization": "Bearer YOUR_TOKEN_COMES_HERE"}',
    'path = "/kaggle/input/datasets/ada/keys/HF_TOKEN"',
    '"access_token": "model.layers.0.self_attn.q_proj.weight"',
    'secret = "The quick brown fox jumps over"',
    "[ngrok](https://dashboard.ngrok.com/get-started/your-authtoken)",
    'aws_region = "eu-central-1"; bucket = "s3://my-bucket/a/very/long/path/that/goes/on/and/on/x"',
    'modal.Image.debian_slim().pip_install("torch")',
    "AKIAIOSFODNN7" + "EXAMPLE",
    'aws_secret_access_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCY' + 'EXAMPLEKEY"',
    '"id": "' + UUID + '"',
    "step 10/100 loss=2.345 task-sk-learn sk-learn-contrib-packages-of-ours",
    "hf_transfer hf_hub_download hf_model_name_of_the_run_in_question_today",
]


@pytest.mark.parametrize("text", SILENT)
def test_what_is_no_secret(text: str) -> None:
    assert secrets_in_text(text, "x.py") == []
    assert secrets_in_notebook(notebook(code(text), {"cell_type": "markdown", "source": text})) == []


def test_images_are_not_searched() -> None:
    image = base64.b64encode(draw.randbytes(300_000)).decode()
    token = TOKENS["aws-access-key"][0]
    outputs = [
        {"output_type": "display_data", "data": {"image/png": f"{token} {image}", "text/plain": "<Figure>"}}
    ]
    html = [
        {"output_type": "display_data", "data": {"text/html": f"<img src='data:image/png;base64,{image}'>"}}
    ]
    markdown = {
        "cell_type": "markdown",
        "source": "![x](attachment:x.png)",
        "attachments": {"x.png": {"image/png": token}},
    }
    assert secrets_in_notebook(notebook(code("plot()", outputs), code("show()", html), markdown)) == []


@pytest.mark.parametrize(
    "value", [None, 5, [], {}, {"cells": 5}, {"cells": [5, None, {"source": 5}, {"outputs": 5}]}]
)
def test_what_is_no_notebook(value: Any, tmp_path: Path) -> None:
    assert secrets_in_notebook(value) == []
    (tmp_path / "x.ipynb").write_text(json.dumps(value))
    assert secrets_in_file(tmp_path / "x.ipynb") == []
    assert secrets_in_file(tmp_path / "nowhere.ipynb") == []


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
    times = []
    for size in (25_000, 100_000):
        text = unit * (size // len(unit)) + "\n" + words
        start = time.process_time()
        secrets_in_text(text, "x.py")
        times.append(time.process_time() - start)
    assert times[1] < 8 * max(times[0], 0.02)


def test_entropy() -> None:
    assert entropy_of("") == 0
    assert entropy_of("aaaa") == 0
    assert entropy_of("abcd") == 2


def test_a_secret_keeps_no_value() -> None:
    assert "value" not in Secret.__match_args__
