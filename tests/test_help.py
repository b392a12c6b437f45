"""`--help`: the flags of a command with the parameters of what was chosen, and examples that run."""

import re
import shlex
from pathlib import Path

import pytest

from fedpns_ray import __version__
from fedpns_ray.terminal import data
from fedpns_ray.terminal.command_line import COMMANDS, FIRST_STEPS, build_parser, main
from fedpns_ray.terminal.run import EXAMPLES

ROOT = Path(__file__).parent.parent
EVERY_EXAMPLE = "\n".join([FIRST_STEPS, data.SHOW_EXAMPLES, *(module.EXAMPLES for module in COMMANDS.values())])


def helped(capsys, command):
    with pytest.raises(SystemExit) as end:
        main([*command.split(), "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


def examples(text):
    """The commands among the lines, without what is said about them two blanks later."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("  fedpns ")]
    return [shlex.split(re.split(r"  +", line)[0].partition(" && ")[0])[1:] for line in lines]


@pytest.mark.parametrize(
    ("command", "there", "not_there"),
    [
        ("run", ("parameters of strategy fedpns", "--alpha NUMBER", "--beta 0..1", "--model NAME"), ("--pace", " X ")),
        ("run --strategy oort", ("parameters of strategy oort: selection oort", "--pace-window N"), ("--alpha",)),
        ("run --strategy=fedavg --selection oort", ("--pace-window N",), ("--alpha",)),
        ("run --strategy nobody.has:This", ("--sigma 0..1",), ("--alpha", "parameters of strategy")),
        ("run --dataset cifar10", ("Default: cnn-c.", "--rho N"), ("--varrho", "mlr. ")),
        ("run c.yaml", ("--concentration NUMBER", "--mu NUMBER"), ("--rho", "--alpha")),
        ("run c.yaml --strategy tifl", ("--tiers N", "--concentration NUMBER"), ("--mu",)),
        ("compare --strategies afl,hics", ("--alpha1 0..1", "--gamma NUMBER"), ("--alpha NUMBER", "--strategy NAME")),
        ("data show", ("--nodes N", "--sigma 0..1", "--seed N"), ("--lr", "--epochs", "--strategy", "--actors")),
    ],
)  # fmt: skip
def test_help_lists_what_the_choice_needs(command, there, not_there, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("c.yaml").write_text("strategy: fedprox\ndataset: mnist\npartition: dirichlet\n")
    said = helped(capsys, command)
    flags = said.partition("examples:")[0]
    assert not [word for word in there if word not in flags]
    assert not [word for word in not_there if word in flags]
    assert "examples:\n  fedpns " in said


def test_help_can_be_had_without_a_command_and_again():
    commands = next(action.choices for action in build_parser()._actions if action.choices)
    text = commands["run"].format_help()
    assert "--alpha NUMBER        How fast" in text and commands["run"].format_help() == text


def test_a_mistake_beside_help_is_named(capsys):
    assert main(["run", "--strategy", "oor", "--help"]) == 2
    assert capsys.readouterr().err.endswith("did you mean oort?\n")


def test_every_flag_of_every_command_is_explained(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    for name in [*COMMANDS, "data show", "data fetch", "data verify"]:
        said = helped(capsys, name)
        assert "examples:\n  fedpns " in said or name in ("data fetch", "data verify", "jobs"), name
        flags = re.findall(r"^  ((?:-h, )?--\S+.*)\n(.*)", said, re.MULTILINE)
        assert flags and not [one for one, after in flags if not re.search(r"\S  +\S", one) and after[:9].strip()], name


def test_every_example_is_understood():
    found = examples(EVERY_EXAMPLE)
    assert len(found) > 35
    for words in found:
        build_parser().parse_args([word for word in words if word != "--help"])


def test_the_first_examples_run_one_after_the_other(capsys, tmp_path, monkeypatch):
    """For 2 rounds; where an example would start a Ray it runs in this process, which changes nothing but speed."""
    monkeypatch.chdir(tmp_path)
    first = examples(EXAMPLES.partition("\n\n")[0])
    assert len(first) == 3
    for words in first:
        short = ["2" if word == "20" else word for word in words]
        assert main(list(dict.fromkeys([*short, "--in-process"]))) == 0, capsys.readouterr().err
    assert '"seed": 2' in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"fedpns {__version__}\n"
