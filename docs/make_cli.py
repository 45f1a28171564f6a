"""Write the reference of commands, `docs/reference/cli.md`, from the parsers: `python docs/make_cli.py`."""

import argparse
from pathlib import Path

from codesign.commands.help import COMMANDS, GROUPS
from codesign.commands.parser import parser

PAGE = Path(__file__).resolve().parent / "reference" / "cli.md"
OPENING = """# Commands

`python docs/make_cli.py` writes this page from the parsers; `codesign COMMAND --help` says the same on the terminal.

In examples RUN stands for a run folder, DIR for another folder, FILE for a file and NAME for a name of your own.
`sh run.sh -- ARGUMENTS` runs `codesign ARGUMENTS` in the environment of a checkout. Every command has `--help`.

Exit codes: 0 where a command did what it was asked; 1 where `verify` refutes a proof or `reproduce` misses a bar; 2 for
a wrong input or where nothing is feasible, with one line on the standard error; 130 after Ctrl-C.
"""


def page() -> str:
    """The text of the page."""
    top = parser()
    (commands,) = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    lines = [OPENING, "| to | commands |", "|---|---|"]
    for title, names in GROUPS.items():
        lines.append(f"| {title} | {', '.join(f'[{name}](#codesign-{name})' for name in names)} |")
    for names in GROUPS.values():
        for name in names:
            lines += ["", *_command(name, commands.choices[name])]
    return "\n".join(lines) + "\n"


def _command(name: str, options: argparse.ArgumentParser) -> list[str]:
    """The section of one command."""
    found = COMMANDS[name]
    actions = sorted((one for one in options._actions if one.dest != "help"), key=lambda one: bool(one.option_strings))
    summary = found.summary[0].upper() + found.summary[1:]
    usage = " ".join(["codesign", name, *map(_usage, actions)])
    rows = [f"| {_names(one)} | {_cell(one.help or '')} |" for one in actions]
    examples = [f"| `{_cell(command)}` | {_cell(what)} |" for command, what in found.examples]
    notes = ["", "```text", found.notes, "```"] if found.notes else []
    return [
        f"## codesign {name}", "", f"{summary}.", "", " ".join(found.about), "", "```text", usage, "```", "",
        "| argument | meaning |", "|---|---|", *rows, "", "| example | what it does |", "|---|---|", *examples, *notes,
    ]  # fmt: skip


def _value(action: argparse.Action) -> str:
    """What stands for the value of an argument; empty for a flag."""
    if action.nargs == 0:
        return ""
    if action.choices is not None and action.metavar is None:
        return "|".join(map(str, action.choices))
    return str(action.metavar or (action.dest.upper() if action.option_strings else action.dest))


def _usage(action: argparse.Action) -> str:
    """An argument in the line of usage."""
    value = _value(action)
    if not action.option_strings:
        return {"*": f"[{value} ...]", "+": f"{value} [{value} ...]", "?": f"[{value}]"}.get(str(action.nargs), value)
    text = f"{action.option_strings[0]} {value}".strip()
    return text if action.required else f"[{text}]"


def _names(action: argparse.Action) -> str:
    """An argument in the table: all its spellings, with its value."""
    value = _value(action)
    if not action.option_strings:
        return f"`{_cell(value)}`"
    return ", ".join(f"`{_cell(f'{name} {value}'.strip())}`" for name in action.option_strings)


def _cell(text: str) -> str:
    """Text of a Markdown table."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
