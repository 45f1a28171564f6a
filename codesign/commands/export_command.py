"""A command for a shell with comments above it, and the options that a target's parser knows."""

import csv
import dataclasses
import functools
import shlex
import textwrap
from collections.abc import Iterable
from pathlib import Path

from .export_plan import SERVED, Deployment, unsaid

OPTIONS = Path(__file__).resolve().parent / "engine_options"
PACKAGES = {
    "vllm": "vllm",
    "vllm_bench": "vllm",
    "sglang": "sglang",
    "megatron": "megatron-core",
    "torchtitan": "torchtitan",
    "maxtext": "maxtext",
}
UNCHECKED = {
    "trtllm": "not checked: no package with the parser of TensorRT-LLM was to be had; names as of commit 00209af"
}
WIDTH = 116
FILL_IN = "FILL-IN"  # begins what stands for something that this package does not know


@dataclasses.dataclass
class Command:
    """One program and its switches; `taken` are the plan's fields that they say, `notes` what is to be known of it."""

    program: list[str]
    switches: list[tuple[str, ...]] = dataclasses.field(default_factory=list)
    taken: set[str] = dataclasses.field(default_factory=set)
    notes: list[str] = dataclasses.field(default_factory=list)

    def add(self, option: str, value: object = None, *taken: str) -> None:
        """A switch with its value, or values, and the fields that it says."""
        values = value if isinstance(value, tuple) else () if value is None else (value,)
        self.switches.append((option, *map(str, values)))
        self.taken.update(taken)

    def note(self, text: str, *taken: str) -> None:
        """A comment, and the fields that it says."""
        self.notes.append(text)
        self.taken.update(taken)

    def words(self) -> list[str]:
        """Program and switches, as a process takes them."""
        return [*self.program, *(word for switch in self.switches for word in switch)]

    def text(self) -> str:
        """Comments, then the command, a switch a line."""
        lines = [" ".join(map(quoted, self.program))]
        lines += [" ".join(map(quoted, switch)) for switch in self.switches]
        return comments(self.notes) + " \\\n  ".join(lines) + "\n"


def quoted(word: str) -> str:
    """For a shell; what begins with $ or holds $(( is left for it to fill in."""
    return f'"{word}"' if "$" in word and '"' not in word else shlex.quote(word)


def comments(notes: Iterable[str]) -> str:
    """Each on lines of its own."""
    wrapped = [textwrap.wrap(note, WIDTH, break_long_words=False, break_on_hyphens=False) for note in notes]
    return "".join(f"# {'  ' if at else ''}{line}\n" for lines in wrapped for at, line in enumerate(lines))


@functools.cache
def known_options(target: str) -> dict[str, tuple[str, ...]]:
    """Options of a target's newest parser with their choices, empty where any value goes."""
    newest = checked_version(target)
    with (OPTIONS / f"{target}.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["version"] == newest]
    return {row["option"]: tuple(filter(None, row["choices"].split("|"))) for row in rows}


@functools.cache
def checked_version(target: str) -> str:
    """Version of the newest package whose parser was read."""
    with (OPTIONS / f"{target}.csv").open(newline="", encoding="utf-8") as file:
        versions = {row["version"] for row in csv.DictReader(file)}
    numbers = {one: tuple(map(int, one.split("."))) for one in versions if one.replace(".", "").isdigit()}
    return max(numbers, key=lambda one: numbers[one])


def opening(found: Deployment, target: str) -> list[str]:
    """Opening lines of an export: how far its switches were checked, the design and its model, values to fill in."""
    model = str(found.model.get("name", "a model without a name"))
    lines = [f"{found.title}: {model} on {found.devices:,} x {found.accelerator or 'accelerator'}"]
    if found.of("prefill_devices"):
        lines[0] += f" for decodes, and {found.of('prefill_devices'):,} accelerators more for prefill"
    lines.append(f"taken: nodes of {found.domain} accelerators, as many as the fastest network joins; set yours")
    lines.insert(0, checked_text(target))
    if not found.hub and found.work in SERVED:
        lines.append(f"{FILL_IN}: name or folder of the model's weights, which this run does not know")
    return lines


def checked_text(target: str) -> str:
    """Statement of how far a target's switches were checked."""
    if target in UNCHECKED:
        return UNCHECKED[target]
    package = f"{PACKAGES[target]} {checked_version(target)}"
    return f"switches as the parser of {package} takes them, read from its package; no engine was started"


def closing(found: Deployment, commands: Iterable[Command]) -> list[str]:
    """Notes on what no command said."""
    return unsaid(found, {name for command in commands for name in command.taken})


def script(found: Deployment, target: str, commands: list[Command], more: Iterable[str] = ()) -> str:
    """Comments about the whole, then each command under its own."""
    head = comments([*opening(found, target), *more, *closing(found, commands)])
    return "\n".join([head, *(command.text() for command in commands)])
