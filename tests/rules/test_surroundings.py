"""A page, a keyboard and Colab's services are not there in a script."""

from __future__ import annotations

import pytest

from nb2ddp.options import Options
from nb2ddp.rules.surroundings import rule
from tests.support.helpers import apply, check_rewritten, check_untouched

TRAINS = "\nfrom trl import SFTTrainer\ntrainer = SFTTrainer(model)\ntrainer.train()\n"


def test_a_function_of_the_notebook_may_be_called_input() -> None:
    check_untouched(rule, "def input(text):\n    return 1\ninput('x')\n" + TRAINS)


def test_plots_are_saved() -> None:
    check_rewritten(
        rule,
        "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\n",
        "import matplotlib.pyplot as plt\nplt.plot([1])\nddp.save_plots()\n",
    )


@pytest.mark.parametrize("call", ["input('name? ')", "getpass.getpass()"])
def test_a_keyboard_before_training_is_declined(call: str) -> None:
    (declined,) = apply(rule, f"import getpass\nname = {call}\n{TRAINS}").declined
    assert "keyboard" in declined.why
    assert declined.place is not None
    assert declined.place.line == 2


def test_a_keyboard_after_training_is_noted() -> None:
    result = apply(rule, TRAINS + "question = input()\n")
    assert not result.declined
    assert result.notes


def test_colab_secrets_come_from_the_environment() -> None:
    check_rewritten(
        rule,
        "from google.colab import userdata\nkey = userdata.get('HF_TOKEN')\n",
        "key = os.environ.get('HF_TOKEN')\n",
    )


def test_colab_mounts_and_downloads_go() -> None:
    check_rewritten(
        rule,
        "from google.colab import drive, files\n"
        "drive.mount('/content/drive')\nfiles.download('a.zip')\nx = 1\n",
        "x = 1\n",
    )


def test_an_upload_is_declined() -> None:
    assert apply(rule, "from google.colab import files\nup = files.upload()\n").declined


def test_counting_gpus_is_noted() -> None:
    assert apply(rule, "import torch\nn = torch.cuda.device_count()\n").notes


@pytest.mark.parametrize(
    "source",
    [
        "port = 9000\nport, game = launch_game(port, None)\n",
        "HTTP_PORT = 9000\nserver.start(port=HTTP_PORT)\n",
        "uvicorn.run(app, port=8000)\n",
        'server = HTTPServer(("", 8000), Handler)\n',
        "def play():\n    return launch_game(port)\nport = 9000\nplay()\nlaunch_game(port)\n",
    ],
)
def test_a_server_on_one_port_is_noted_once(source: str) -> None:
    (note,) = check_untouched(rule, source + TRAINS).notes
    assert "LOCAL_RANK" in note.why
    assert note.place is not None
    assert "000" in source.splitlines()[note.place.line - 1]


@pytest.mark.parametrize(
    "source",
    [
        "head_port = 11000\nrequests.get(f'http://127.0.0.1:{head_port}/x')\n",
        "db = connect(host='h', port=5432)\n",
        "port = 9000\nprint(port)\n",
        "serve(app, port=0)\n",
        "serve(app, port=9000 + int(os.environ.get('LOCAL_RANK', 0)))\n",
        "def start(port):\n    return launch_game(port)\n",
        "from unsloth import launch_openenv\nport = 9000\nport, game = launch_openenv(port, None)\n",
    ],
)
def test_a_port_that_is_asked_or_left_open_is_not_noted(source: str) -> None:
    assert not check_untouched(rule, source + TRAINS).notes


def test_one_process_starts_one_server() -> None:
    balanced = Options(strategy="balanced")
    assert not apply(rule, "uvicorn.run(app, port=8000)\n" + TRAINS, options=balanced).notes


def test_a_server_after_training_is_rank_0s() -> None:
    assert not apply(rule, TRAINS + "demo.launch(server_port=7860)\n").notes


@pytest.mark.parametrize(
    "call", ["login()", "login(token=None)", "login(add_to_git_credential=True)", "notebook_login()"]
)
def test_a_login_that_asks_somebody_goes(call: str) -> None:
    name = call.partition("(")[0]
    head = f"from huggingface_hub import {name}\n"
    result = check_rewritten(rule, f"{head}{call}\nx = 1\n", f"{head}x = 1\n")
    assert "HF_TOKEN" in result.changes[0].why


@pytest.mark.parametrize("call", ["login(token)", "login(token=key)", 'login("hf_x")'])
def test_a_login_with_a_token_stays(call: str) -> None:
    check_untouched(rule, f"from huggingface_hub import login\n{call}\n")


def test_a_login_whose_result_is_used_is_noted() -> None:
    (note,) = apply(rule, "from huggingface_hub import login\ndone = login()\n").notes
    assert "HF_TOKEN" in note.why


@pytest.mark.parametrize(
    ("made", "launch"),
    [
        ("demo = gr.ChatInterface(chat)", "demo.launch(share=True"),
        ("demo = gr.Interface(chat, 'text', 'text').queue()", "demo.launch(share=True"),
        ("demo = gr.Blocks()", "demo.queue().launch(share=True"),
        ("with gr.Blocks() as demo:\n    gr.Textbox()", "demo.launch(share=True"),
        ("import gradio", "gradio.Interface(chat, 'text', 'text').launch(share=True"),
    ],
)
def test_a_page_that_serves_does_not_hold_the_script(made: str, launch: str) -> None:
    head = f"import gradio as gr\n{made}\n"
    check_rewritten(rule, f"{head}{launch})\n", f"{head}{launch}, prevent_thread_lock=True)\n")


@pytest.mark.parametrize("call", ["rocket.launch()", "demo.launch(prevent_thread_lock=False)"])
def test_other_launches_are_left_alone(call: str) -> None:
    check_untouched(rule, f"import gradio as gr\ndemo = gr.Blocks()\nrocket = Rocket()\n{call}\n")


def test_one_rank_has_a_run_of_wandb() -> None:
    check_untouched(rule, "import wandb\nwandb.init()\nwandb.log({'a': 1})\n" + TRAINS)


@pytest.mark.parametrize("name", ["wandb.run.name", "run.id"])
def test_the_name_of_a_run_is_rank_0s(name: str) -> None:
    (note,) = check_untouched(rule, f"import wandb\nrun = wandb.init()\nfolder = {name}\n" + TRAINS).notes
    assert "only rank 0" in note.why


@pytest.mark.parametrize(
    "source",
    [
        "print(torch.cuda.device_count())",
        'print(f"{torch.cuda.device_count()} GPUs")',
        "logger.info('%d', torch.cuda.device_count())",
        "n = torch.cuda.device_count()\nprint('GPUs:', n)",
        "torch.cuda.device_count()",
    ],
)
def test_a_count_of_gpus_that_is_only_shown_is_not_noted(source: str) -> None:
    assert not apply(rule, f"import torch\n{source}\n").notes


@pytest.mark.parametrize(
    "source",
    [
        "n = torch.cuda.device_count()\nprint(n)\nbatch = 8 * n",
        "for i in range(torch.cuda.device_count()):\n    print(i)",
        "if torch.cuda.device_count() > 1:\n    print('several')",
        "print([torch.zeros(1) for _ in range(3)])\nargs = dict(gpus=torch.cuda.device_count())",
    ],
)
def test_a_count_of_gpus_that_decides_something_is_noted(source: str) -> None:
    assert apply(rule, f"import torch\n{source}\n").notes
