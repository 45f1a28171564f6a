"""Help: commands by what a user wants to do, three lines of prose and examples each; a reference written from it."""

import argparse
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from codesign.commands.cli import FUNCTIONS, main
from codesign.commands.help import COMMANDS, EXAMPLES_IN_HELP, GROUPS, START, start_text
from codesign.commands.parser import parser

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 79  # characters of a line of prose


def parsers() -> dict[str, argparse.ArgumentParser]:
    (result,) = [one for one in parser()._actions if isinstance(one, argparse._SubParsersAction)]
    return dict(result.choices)


def test_every_command_is_parsed_done_explained_and_in_one_group():
    grouped = [name for names in GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == set(COMMANDS) == set(FUNCTIONS) == set(parsers())


def test_the_overview_groups_commands(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    result: dict[str, list[str]] = {}
    for line in lines[1:]:
        if re.fullmatch(r"[a-z ]+:", line):
            result[line[:-1]] = []
        elif line.startswith("  ") and result:
            result[list(result)[-1]].append(line.split()[0])
    assert result.pop("options") == ["--help", "--version"]
    assert {title: tuple(names) for title, names in result.items()} == GROUPS
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_three_lines_and_an_example(name, capsys):
    about = COMMANDS[name].about
    assert len(about) == 3
    assert max(map(len, about)) <= LONGEST
    assert about[-1].endswith(".")
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "\n".join(about) in text
    examples = COMMANDS[name].examples
    assert [line.strip() for line in text.splitlines() if line.startswith(f"  codesign {name}")] == [
        command for command, _ in examples[:EXAMPLES_IN_HELP]
    ]
    assert all(command.split()[:2] == ["codesign", name] for command, _ in examples)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is(name):
    for action in parsers()[name]._actions:
        assert action.help, action.dest
        assert not action.help.startswith(("of ", "Of ")), action.help


def test_codesign_alone_says_what_to_type_first(capsys):
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert printed == start_text() + "\n"
    assert len(printed.splitlines()) <= 10
    for _, command in START:
        words = shlex.split(command)[1:]
        if words != ["--help"]:
            assert parser().parse_args(words).command == words[0]


def test_the_reference_is_what_the_parsers_say():
    path = ROOT / "docs" / "make_cli.py"
    spec = importlib.util.spec_from_file_location("make_cli", path)
    assert spec is not None
    assert spec.loader is not None
    written = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written)
    committed = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert committed == written.page(), "run python docs/make_cli.py"
    for name, one in parsers().items():
        section = committed[committed.index(f"## codesign {name}\n") :].split("\n## ")[0]
        for action in one._actions:
            for option in action.option_strings if action.dest != "help" else ():
                assert f"`{option}" in section, (name, option)
