"""What is read from rank 0's output: stages, steps, losses; and which bar is the training's."""

from __future__ import annotations

import time

import pytest

from nb2ddp.monitor.closing import facts
from nb2ddp.monitor.progress import WORDS, Progress

TRAINER = (
    "Unsloth: a banner\n"
    "\rMap:   0%|          | 0/320 [00:00<?, ? examples/s]"
    "\rMap: 100%|██████████| 320/320 [00:00<00:00, 32.00 examples/s]\n"
    "nb2ddp: batch 2 x 2 accumulation steps x 2 processes = 8 per step\n"
    "\r  0%|          | 0/4 [00:00<?, ?it/s]\r 25%|██▌       | 1/4 [00:02<00:06,  2.00s/it]"
    "\r                          \r{'loss': '7.277', 'grad_norm': '0.4546', 'epoch': '0.025'}\n"
    "\r 25%|██▌       | 1/4 [00:02<00:06,  2.00s/it]\r 50%|█████     | 2/4 [00:03<01:02,  2.00it/s]"
    "\r                          \r{'loss': 7.5, 'grad_norm': nan, 'epoch': 0.05}\n"
    "\r  0%|          | 0/9 [00:00<?, ?it/s]\r100%|██████████| 9/9 [00:00<00:00, 99.00it/s]"
    "\r                          \r{'eval_loss': '7.0', 'eval_runtime': '0.1', 'epoch': '0.05'}\n"
    "said in between\n"
)


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_progress_of_a_trainer_in_pieces_of_any_size(size: int) -> None:
    progress = Progress()
    shown = "".join(progress.feed(TRAINER[i : i + size]) for i in range(0, len(TRAINER), size))
    assert shown.splitlines() == [
        "Unsloth: a banner",
        "nb2ddp: batch 2 x 2 accumulation steps x 2 processes = 8 per step",
        "said in between",
    ]
    assert (progress.step, progress.total, progress.batch) == (2, 4, 8)
    assert progress.curve() == [(1, 7.277), (2, 7.5)]
    assert progress.curve("grad_norm") == [(1, 0.4546)], "nan is no point of a curve"
    assert progress.curve("eval_loss") == [(2, 7.0)]
    assert progress.seconds_left == 62
    assert progress.samples_per_second == 16
    assert facts(progress) == ["step 2 of 4", "1:02 left", "loss 7.5", "16 samples/s"]


def test_the_batch_of_steps_that_are_shared_out_by_length() -> None:
    progress = Progress()
    progress.feed("nb2ddp: batch 2 x 4, by length over 3 processes = 8 per step\n")
    assert progress.batch == 8


def test_the_trainers_own_speed_counts_in_the_end() -> None:
    progress = Progress()
    progress.feed("{'train_runtime': '1.9', 'train_samples_per_second': '40.2', 'train_loss': '7.1'}\n")
    assert progress.samples_per_second == 40.2
    assert progress.loss is None


def test_steps_of_a_loop_go_on_in_the_next_epoch() -> None:
    progress = Progress()
    for epoch in (0, 1):
        progress.feed("\r  0%|          | 0/10 [00:00<?, ?it/s]")
        progress.feed(f"epoch {epoch} step 0: loss {7 - epoch}\nepoch {epoch} step 5: loss 4.5e-1\n")
        progress.feed("\r100%|██████████| 10/10 [00:00<00:00, 90.00it/s]\n")
        progress.feed("\r100%|██████████| 3/3 [00:00<00:00, 90.00it/s]\neval_loss=tensor(4.6)\n")
    assert progress.curve() == [(0, 7.0), (5, 0.45), (10, 6.0), (15, 0.45)]
    assert progress.finish() == ""


def test_what_is_no_log_is_text() -> None:
    progress = Progress()
    text = "{'text': 'no number', 'loss': 'much'}\n{'rows': 3}\n\nlossless 5\n"
    assert progress.feed(text) == text
    assert progress.feed("no end") == ""
    assert progress.finish() == "no end\n"
    assert progress.records == []
    progress.feed("The loss is at loss 1.5.\n")
    assert progress.loss == 1.5


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("LOSS 2 0.207387", None),
        ("loss 3: 0.5", None),
        ("loss 0/10 1.25", None),
        ("loss 2", 2.0),
        ("loss: 2, lr: 0.1", 2.0),
        ("loss 1e-3 lr 0.1", 1e-3),
        ("train_loss=2.50 val 3", 2.5),
        ("step 12 loss 10.5 acc 0.5", 10.5),
    ],
)
def test_a_loss_is_the_number_beside_the_word(line: str, loss: float | None) -> None:
    assert heard(f"{line}\n").loss == loss


def bar(done: int, total: int, label: str = "", postfix: str = "") -> str:
    """A bar as tqdm draws it."""
    left = "?" if not done else "00:09"
    name = f"{label}: " if label else ""
    more = f", {postfix}" if postfix else ""
    rate = "2.0" if done else "?"
    return f"\r{name}{100 * done // total:3}%|##    | {done}/{total} [00:01<{left}, {rate}it/s{more}]"


def heard(*pieces: str) -> Progress:
    progress = Progress()
    for piece in pieces:
        progress.feed(piece)
    return progress


@pytest.mark.parametrize(
    ("label", "stage"),
    [
        ("Loading weights", "loading"),
        ("Loading checkpoint shards", "loading"),
        ("Fetching 2 files", "loading"),
        ("model-00001-of-00002.safetensors", "loading"),
        ("tokenizer_config.json", "loading"),
        ("Downloading data", "loading"),
        ("Map (num_proc=2)", "tokenising"),
        ("Generating train split", "tokenising"),
        ("Tokenizing train dataset", "tokenising"),
        ('Unsloth: Tokenizing ["text"] (num_proc=4)', "tokenising"),
        ("Adding EOS to train dataset", "tokenising"),
        ("Saving the dataset (0/1 shards)", "tokenising"),
        ("Writing model shards", "saving"),
    ],
)
@pytest.mark.parametrize("postfix", ["", "Materializing param=lm_head.weight"])
def test_a_bar_of_the_preparation_counts_no_steps(label: str, stage: str, postfix: str) -> None:
    for done in (0, 1, 21):
        progress = heard(bar(done, 21, label, postfix))
        assert (progress.step, progress.total, progress.stage) == (0, 0, stage)
        assert facts(progress) == [WORDS[stage]]


def test_a_notebooks_own_loop_over_rows_is_no_training() -> None:
    progress = heard(bar(0, 200), bar(35, 200))
    assert facts(progress) == ["35 of 200"]
    progress.feed(bar(200, 200) + "\nprepared 200 rows\n")
    progress.feed("step 3: loss 2.5\n")
    assert (progress.step, progress.total, progress.loss) == (0, 0, 2.5), "a loop without a bar"


def test_a_trainers_bar_is_known_before_its_first_loss() -> None:
    said = ["Num examples = 96 | Num Epochs = 1 | Total steps = 60\n", bar(0, 60)]
    assert facts(heard(*said)) == ["step 0 of 60", WORDS["compiling"]]
    progress = heard(*said, bar(3, 60), bar(4, 9), bar(9, 9))
    assert (progress.step, progress.total) == (3, 60), "the other one is an evaluation's"
    progress.feed("\n{'train_runtime': '9.0', 'train_loss': '2.0'}\n")
    assert progress.stage == "after training"
    assert heard(*said, bar(3, 60), "\nnb2ddp: 2 replicas equal, bit for bit\n").doing == "after training"


def test_bars_of_epochs_with_their_loss() -> None:
    progress = heard(*(bar(n, 10, "Epoch 1", f"loss={3 - n / 10}") for n in range(11)))
    progress.feed(bar(2, 10, "Epoch 2", "loss=1.9"))
    assert (progress.step, progress.total, progress.steps) == (2, 10, 12)


def test_a_loss_decides_between_two_bars() -> None:
    progress = heard(bar(0, 3, "Epoch"), bar(0, 50), bar(1, 50), "loss 2.0\n", bar(2, 50))
    assert (progress.step, progress.total) == (2, 50)


def test_two_trainings_count_on() -> None:
    log = "\n{'loss': '2.0', 'epoch': '1.0'}\n"
    progress = heard(
        bar(0, 4), bar(3, 4), log, bar(4, 4), "\nnow DPO\n", bar(0, 2), bar(1, 2), log, bar(2, 2)
    )
    assert progress.steps == 6


def test_equal_replicas_are_reported() -> None:
    for said in ("2 replicas equal, bit for bit", "2 ranks hold one model in shards"):
        assert heard(f"nb2ddp: {said}\n").replicas == said


def test_a_loss_counts_where_a_bar_comes_before_its_line_feed() -> None:
    """They come from two pipes: stdout's text in two writes, stderr's between them."""
    progress = heard(bar(3, 4), "\n{'loss': '2.7'}", "\n", "\n{'loss': '2.0'}", bar(4, 4), "\n")
    assert [loss for _, loss in progress.curve()] == [2.7, 2.0]


def test_what_follows_a_save_after_training_is_no_saving() -> None:
    progress = Progress()
    progress.feed("nb2ddp: 2 replicas equal, bit for bit, after 40 steps\n")
    progress.feed(bar(0, 1, "Writing model shards"))
    assert progress.stage == "saving"
    progress.feed(bar(1, 1, "Writing model shards") + "\n")
    assert progress.stage == "after training"


def test_losses_without_a_step_are_numbered() -> None:
    progress = heard("epoch 0: loss 1.5\n", "epoch 1: loss 1.2\n", "epoch 2: loss 1.1\n")
    assert progress.curve() == [(1, 1.5), (2, 1.2), (3, 1.1)]
    assert progress.steps == 0


def test_what_bars_leave_is_no_text() -> None:
    """A bar of an evaluation below that of the training, which goes and leaves blank lines."""
    progress = Progress()
    shown = (
        "before\n\n" + bar(1, 4) + "\n" + bar(0, 2) + "\x1b[A\n" + bar(2, 2) + "\x1b[A\r      \r\n\r     \r"
    )
    assert (
        progress.feed(f"{shown}{{'eval_loss': 0.5}}\n{bar(2, 4)}\n\nafter\n\nend\n")
        == "before\n\nafter\n\nend\n"
    )


def test_what_was_printed_ends_the_start() -> None:
    assert heard(" \n").stage == "starting"
    assert heard("12 batches\n").stage == "running"


@pytest.mark.parametrize("start", ["", "loss", "step", "Map:", "loss: 1.5 step"])
def test_blanks_cost_no_more_than_they_are_long(start: str) -> None:
    progress, began = Progress(), time.process_time()
    progress.feed(f"{start}{' ' * 50_000}\n")
    assert time.process_time() - began < 2
