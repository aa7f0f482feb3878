"""One `Options` for the command line, the API and the magic: each takes every option, and checks it alike."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from pathlib import Path
from typing import Any, get_type_hints

import click
import nbformat
import pytest
from click.testing import CliRunner

import nb2ddp
from nb2ddp.cli import main
from nb2ddp.cli.common import conversion_options
from nb2ddp.errors import OptionError
from nb2ddp.options import OptionKeywords, Options, argparse_options, file_defaults, given, settings
from tests.support.helpers import converted, notebook

# Another value than the default for each option: a new option is one line here.
OTHER: dict[str, Any] = {
    "nproc": 4,
    "batch": "scale",
    "strategy": "balanced",
    "gpu_memory": 80.5,
    "owner": "me",
    "title": "A title",
    "single_file": True,
}
WRONG: list[tuple[str, Any, str]] = [
    ("nproc", 0, "nproc cannot be 0; it has to be 1 or more."),
    ("nproc", "2", "nproc cannot be '2'; it has to be a whole number."),
    ("nproc", 2.0, "nproc cannot be 2.0; it has to be a whole number."),
    ("nproc", True, "nproc cannot be True; it has to be a whole number."),
    ("nproc", None, "nproc cannot be None; it has to be a whole number."),
    ("batch", "other", "batch cannot be 'other'; choose preserve or scale."),
    ("batch", ["preserve"], "batch cannot be ['preserve']; choose preserve or scale."),
    ("strategy", "zero", "strategy cannot be 'zero'; choose ddp or fsdp or balanced."),
    ("gpu_memory", 0.5, "gpu_memory cannot be 0.5; it has to be 1 or more."),
    ("gpu_memory", float("nan"), "gpu_memory cannot be nan; it has to be 1 or more."),
    ("gpu_memory", float("inf"), "gpu_memory cannot be inf; it has to be 1 or more."),
    ("gpu_memory", "80", "gpu_memory cannot be '80'; it has to be a number."),
    ("owner", 3, "owner cannot be 3; it has to be a text."),
    ("title", b"x", "title cannot be b'x'; it has to be a text."),
    ("single_file", 1, "single_file cannot be 1; it has to be true or false."),
]
TRAIN = """
from trl import SFTConfig, SFTTrainer
trainer = SFTTrainer(model=m, args=SFTConfig())
trainer.train()
"""
NAMES = [setting.name for setting in settings()]


def line_of(values: dict[str, Any]) -> list[str]:
    """The command line that gives these values."""
    words = []
    for setting in settings():
        if setting.name in values:
            words += [setting.flag] if setting.type is bool else [setting.flag, str(values[setting.name])]
    return words


def test_each_option_is_tested_here() -> None:
    assert set(OTHER) == set(NAMES)
    assert {name for name, _, _ in WRONG} == set(NAMES)
    assert all(getattr(Options(), name) != value for name, value in OTHER.items())


def test_the_keywords_of_the_api_are_the_fields() -> None:
    assert get_type_hints(OptionKeywords) == get_type_hints(Options)


@pytest.mark.parametrize("name", NAMES)
def test_an_option_reaches_convert_by_keyword_by_command_line_and_by_magic(name: str) -> None:
    wanted = Options(**{name: OTHER[name]})
    words = line_of({name: OTHER[name]})

    @click.command()
    @conversion_options
    def command(**values: Any) -> None:
        seen.append(Options(**values))

    seen: list[Options] = []
    command.main(words, standalone_mode=False)
    assert seen == [wanted]

    parser = argparse.ArgumentParser()
    for names, more in argparse_options():
        parser.add_argument(*names, **more)
    assert given(vars(parser.parse_args(words))) == wanted
    assert given(vars(parser.parse_args([]))) == Options()

    assert Options().with_(**{name: OTHER[name]}) == wanted


@pytest.mark.parametrize(("name", "value", "sentence"), WRONG)
def test_a_value_that_cannot_be_is_told_in_a_sentence(name: str, value: Any, sentence: str) -> None:
    with pytest.raises(OptionError) as error:
        Options(**{name: value})
    assert str(error.value) == sentence
    assert error.value.exit_code == 2


def test_the_api_takes_options_and_keywords(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    nbformat.write(notebook(TRAIN), path)
    options = nb2ddp.Options(nproc=3, batch="scale")
    assert nb2ddp.convert(path, options=options).files == nb2ddp.convert(path, nproc=3, batch="scale").files
    assert nb2ddp.convert(path, options=options).files != nb2ddp.convert(path).files
    both = nb2ddp.convert(path, options=options, nproc=2)
    assert both.files == nb2ddp.convert(path, batch="scale").files


def test_an_unknown_keyword_is_told_with_those_that_exist() -> None:
    with pytest.raises(OptionError, match=r"no option procs; did you mean nproc\?"):
        converted("x = 1", procs=2)


# ---- defaults from a file -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nb2ddp.toml", 'nproc = 4\nbatch = "scale"\ngpu-memory = 24\nsingle_file = true\n'),
        (
            "pyproject.toml",
            '[tool.nb2ddp]\nnproc = 4\nbatch = "scale"\ngpu_memory = 24\nsingle-file = true\n',
        ),
    ],
)
def test_the_nearest_file_gives_defaults(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\nnproc = 9\n")
    wanted = Options(nproc=4, batch="scale", gpu_memory=24, single_file=True)
    assert file_defaults(tmp_path / "a" / "b") == wanted
    (tmp_path / "a" / "nb2ddp.toml").write_text("nproc = 3\n")
    assert file_defaults(tmp_path / "a" / "b") == Options(nproc=3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("procs = 3", "there is no option procs; did you mean nproc?"),
        ("colour = 3", "there is no option colour; the options are nproc, batch,"),
        ("nproc = '3'", "nproc cannot be '3'; it has to be a whole number."),
        ("nproc = ", "is not a TOML file that can be read: Invalid value"),
        ("nproc = 1\x00", "is not a TOML file that can be read"),
    ],
)
def test_a_wrong_file_is_told_with_its_name(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "nb2ddp.toml"
    file.write_text(text)
    with pytest.raises(OptionError) as error:
        file_defaults(tmp_path)
    assert str(error.value).startswith(str(file))
    assert sentence in str(error.value)


def test_a_table_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\nnb2ddp = 3\n")
    with pytest.raises(OptionError, match="has to be a table"):
        file_defaults(tmp_path)


def test_the_command_line_goes_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nbformat.write(notebook(TRAIN), tmp_path / "a.ipynb")
    (tmp_path / "nb2ddp.toml").write_text('nproc = 4\nbatch = "scale"\n')

    def script(*words: str) -> str:
        result = CliRunner().invoke(main, ["convert", "a.ipynb", *words], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return (tmp_path / "a_ddp" / "train_ddp.py").read_text()

    assert "--nproc_per_node=4" in script()
    assert script() == nb2ddp.convert("a.ipynb", nproc=4, batch="scale").files["train_ddp.py"]
    assert script("--nproc", "2") == nb2ddp.convert("a.ipynb", batch="scale").files["train_ddp.py"]
    (tmp_path / "nb2ddp.toml").write_text("colour = 1\n")
    result = CliRunner().invoke(main, ["convert", "a.ipynb"], catch_exceptions=False)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert CliRunner().invoke(main, ["rules"], catch_exceptions=False).exit_code == 0


def test_a_flag_can_be_switched_off_again() -> None:
    parser = argparse.ArgumentParser()
    for names, more in argparse_options():
        parser.add_argument(*names, **more)
    assert not given(vars(parser.parse_args(["--no-single-file"])), Options(single_file=True)).single_file
    assert given(vars(parser.parse_args([])), Options(single_file=True)).single_file


def test_options_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().nproc = 3  # type: ignore[misc]


def test_one_process_holds_a_balanced_model() -> None:
    assert Options(nproc=4).processes == 4
    assert Options(nproc=4, strategy="balanced").processes == 1
    assert Options(nproc=4, strategy="fsdp").processes == 4


@pytest.mark.parametrize("name", NAMES)
def test_convert_and_the_magic_offer_every_option(name: str) -> None:
    (setting,) = (setting for setting in settings() if setting.name == name)
    assert any(setting.flag in parameter.opts for parameter in main.commands["convert"].params)
    from nb2ddp.jupyter.magic import DDPMagics

    magic: Any = DDPMagics.run_ddp
    words = line_of({name: OTHER[name]})
    assert getattr(magic.parser.parse_args(shlex.split(shlex.join(words))), name) == OTHER[name]
