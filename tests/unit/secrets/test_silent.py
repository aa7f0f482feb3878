"""What is no secret, and what is no notebook: nothing is found."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.secrets import secrets_in_file, secrets_in_notebook, secrets_in_text
from tests.support.tokens import HEX, TOKENS, UUID, draw, some
from tests.unit.secrets.test_found import code, notebook

Place = Callable[[str], tuple[dict[str, Any], str]]


SILENT = [
    'token = tokenizer.decode([1])\ntoken = "▁Hello1World2"\ntoken: str = "<|eot_id|>"',
    'stop_token: str = "<|end_of_text_2|>"; tokens: list[str] = ["aB3cD4eF5gH6iJ7k"]',
    "!python train.py --model_name unsloth/Llama-3.2-1B-Instruct-bnb-4bit --token $HF_TOKEN",
    "!accelerate launch x.py --push_to_hub_token ${{ secrets.HF_TOKEN }}",
    "!vllm serve m --api-key token-abc123 --tokenizer-revision " + some(40, HEX),
    "!huggingface-cli download a/b --token hf_... --revision " + some(40, HEX),
    "parser.add_argument('--hub_token', default=None)",
    "api_key: the key that you get from the settings page of the service",
    "access_token: ${HF_TOKEN}\nsecret_key = os.environ['MY_SECRET_KEY_2026']",
    "password = getpass.getpass()\naccess_key=config_for_the_bucket_number_2",
    "auth_token = user_secrets_client_v2_for_kaggle_2026",
    "max_new_tokens: int = 256; pad_token_id: int = 128004",
    "https://raw.githubusercontent.com/a/b/" + some(40, HEX) + "/x.py",
    "!pip install git+https://github.com/a/b@" + some(40, HEX),
    "git@github.com:a/b.git https://github.com/@ada2026abcdefghi",
    "b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ')",
    "https://ada.blob.core.windows.net/data/train.jsonl?comp=list",
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
