"""The command line that all commands share: help, wrong options, and factories that cannot be loaded."""

import pytest

from gluonloader.__main__ import main

HELP = {
    "bench": ["python -m gluonloader bench train:make --against torch"],
    "tune": ["python -m gluonloader tune train:make --step 0.05"],
    "doctor": ["examples:", "python -m gluonloader doctor train:make", "--json", "--seconds", "The exit status is 1"],
    "records": ["make", "list", "check"],
    "records make": ["examples:", "--json", "--root", "--resize", "--quality", "--num-workers", "--shuffle", "--seed"],
    "records list": ["examples:", "--json"],
    "records check": ["examples:", "--json"],
}


@pytest.mark.parametrize("command", HELP)
def test_help_has_examples_and_options(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert [text for text in HELP[command] if text not in out] == []


def test_without_a_command_the_commands_are_listed(capsys):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert all(f"    {command}" in err for command in ("bench", "cache", "doctor", "records", "serve", "tokens"))


KEYWORDS = ["2", "num_workers", "num_workers=f()", "num_workers=", "**{}", "a=1)("]
WRONG = [
    *((["bench", "train:make", "--with", text], f"{text}: write keyword arguments, such as num_workers=2")
      for text in KEYWORDS),
    *((["tune", "train:make", "--step", value], f"argument --step: {value}: must be a number of seconds")
      for value in ("-1", "nan", "inf", "soon")),
    *((["doctor", "--seconds", value], "must be a number of seconds above 0") for value in ("0", "-1", "nan", "soon")),
    (["records", "make", "a", "b", "--resize", "0"], "argument --resize: 0: must be an int that is at least 1"),
    (["records", "make", "a", "b", "--resize", "x"], "argument --resize: x: must be an int that is at least 1"),
    (["records", "make", "a", "b", "--seed", "-1"], "argument --seed: -1: must be an int that is at least 0"),
    (["records", "list", "a", "--first", "-1"], "argument --first: -1: must be an int that is at least 0"),
    (["records", "check", "a", "--num-workers", "x"],
     'argument --num-workers: x: must be "auto" or an int that is at least 0'),
    (["serve", "train:make", "--name", "x", "--each", "one"], "unrecognized arguments: --each one"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "text"), WRONG, ids=lambda value: " ".join(value) if type(value) is list else "")
def test_a_wrong_option_is_named(arguments, text, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("command", ["bench", "doctor", "serve --name x", "tune"])
@pytest.mark.parametrize(
    ("factory", "text"),
    [
        ("nowhere:make", "there is no module nowhere"),
        ("nowhere", "write MODULE:FUNCTION"),
        ("json:absent", "json has no function absent"),
    ],
)
def test_a_factory_that_cannot_be_loaded_is_named_in_one_line(command, factory, text, capsys):
    name, *options = command.split()
    assert main([name, factory, *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert text in err
