"""Switches of the engines' parsers: names of one option, how many words it takes, what it does to a prediction."""

import csv
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...config.groups import read_yaml
from ...core.errors import ConfigError, suggestion
from ...core.json_yaml import dumps, is_mapping
from ...core.resources import conf_dir
from ...core.untrusted_io import tree_of_json
from ..export_plan import OPTIONS

__all__ = [
    "ENGINES", "Ends", "Option", "Switches", "ends_of_layout", "finished", "is_integer", "layout_text", "megatron_ends",
    "model_file", "not_modelled_line", "options_of", "read_switches", "switches_of_mapping", "titan_ends",
]  # fmt: skip


ENGINES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "trtllm": "TensorRT-LLM",
    "megatron": "Megatron",
    "torchtitan": "torchtitan",
}
PRICED, NO_EFFECT = "priced", "none"
SHORT = re.compile(r"-[A-Za-z]{1,4}\d?(\..*)?")
OPTION = re.compile(r"--?[A-Za-z]")
FLAGS = {"true": True, "false": False}
HUMAN = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""Endings that vLLM takes behind a number: lower case counts in thousands, upper case in 1024."""
SHOWN = 6


class Option(NamedTuple):
    """One option: its longest name, words that it takes (`0`, `1`, `?`, `+` or unknown), effect, choices."""

    name: str
    takes: str
    effect: str
    choices: tuple[str, ...]


@dataclass
class Switches:
    """Options of one command by name, without the leading hyphens, and how they were written."""

    engine: str
    given: dict[str, str] = field(default_factory=dict[str, str])
    written: dict[str, str] = field(default_factory=dict[str, str])
    model: str = ""

    def has(self, *names: str) -> bool:
        """True if one of these is given, and not as `false`."""
        return any(self.given.get(name, "false").lower() != "false" for name in names)

    def denied(self, name: str) -> bool:
        """True if a flag is taken away: `--no-NAME`, or `false` in a file."""
        return self.given.get(name, "").lower() == "false"

    def text(self, *names: str, default: str = "") -> str:
        """The first of these that is given."""
        return next((self.given[name] for name in names if self.given.get(name)), default)

    def number(self, *names: str, default: int = 1, low: int = 1) -> int:
        """A whole number, with the endings of vLLM (`8k`, `1M`).

        Raises:
            ConfigError: none, or one below `low`.
        """
        name = next((name for name in names if self.given.get(name)), "")
        if not name:
            return default
        text = self.given[name].strip().strip("'\"")
        match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([kKmMgGtT]?)", text)
        value = float(match[1]) * HUMAN.get(match[2], 1) if match else -1.0
        if not match or value != int(value) or value < low or value > 1e15:
            hint = (
                f"; {text} is a variable: put {text.lstrip('$').strip('{}()')}=NUMBER before the command"
                if "$" in text
                else ""
            )
            raise ConfigError(f"--from: {self.shown(name)} {text!r} is no whole number of at least {low}{hint}")
        return int(value)

    def share(self, *names: str) -> float | None:
        """A number above 0, at most 1; None where none is given.

        Raises:
            ConfigError: another number, or none.
        """
        name = next((name for name in names if self.given.get(name)), "")
        if not name:
            return None
        try:
            value = float(self.given[name])
        except ValueError:
            value = -1.0
        if not 0 < value <= 1:
            raise ConfigError(f"--from: {self.shown(name)} {self.given[name]!r} is no number above 0 and at most 1")
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """Keys and values of a JSON option; empty where it is none."""
        text = self.given.get(name, "")
        if not text.startswith("{"):
            return {}
        result = tree_of_json(text, f"--from: {self.shown(name)}")
        return result if is_mapping(result) else {}

    def shown(self, name: str) -> str:
        """An option as it was written."""
        return self.written.get(name, f"--{name}")

    def check_choices(self) -> None:
        """Raises:
        ConfigError: a priced option with a value that its parser does not take.
        """
        for name, value in self.given.items():
            option = options_of(self.engine).get(name)
            if not (option and option.effect == PRICED and option.choices and option.takes == "1" and value):
                continue
            if value not in option.choices and not value.startswith("{"):
                hint = suggestion(value, option.choices)
                raise ConfigError(f"--from: {self.shown(name)} {value!r} is not one of its choices{hint}")

    def not_modelled(self) -> list[str]:
        """Options, as written, that may change what an engine does and that no prediction takes."""
        table = options_of(self.engine)
        return [
            f"{self.shown(name)} {_brief(value)}".strip()
            for name, value in self.given.items()
            if name in table and table[name].effect not in (PRICED, NO_EFFECT)
        ]


def not_modelled_line(commands: Iterable[Switches]) -> list[str]:
    """One line of all options that no prediction takes; none where there are none."""
    named = list(dict.fromkeys(one for command in commands for one in command.not_modelled()))
    more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    return [f"not modelled: {', '.join(named[:SHOWN])}{more}"] if named else []


def _brief(value: str) -> str:
    return value if len(value) <= 40 else f"{value[:37]}..."


def is_integer(text: str) -> bool:
    """True if a text is a whole number of at most nine digits, in digits of ASCII."""
    return re.fullmatch("[0-9]{1,9}", text) is not None


def _plain(name: str) -> str:
    """A name as it is looked up: hyphens for underscores, none in front."""
    return name.lstrip("-").replace("_", "-")


@functools.cache
def options_of(engine: str) -> dict[str, Option]:
    """Every name of an engine's options, plain -> the option; `name` is the longest of its names, plain."""
    with (OPTIONS / f"{engine}.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    longest: dict[tuple[str, str], str] = {}
    for row in rows:
        key = row["version"], row["at"]
        longest[key] = max(longest.get(key, ""), row["option"], key=len)
    single = engine in ("megatron", "torchtitan")  # options of one line of a class are one each
    result: dict[str, Option] = {}
    for row in rows:
        if engine == "vllm" and "." in row["option"]:
            continue  # a key of a JSON option
        name = row["option"] if single else longest[row["version"], row["at"]]
        kinds = tuple(filter(None, row["choices"].split("|")))
        result[_plain(row["option"])] = Option(_plain(name), row["takes"], row["effect"], kinds)
    return result


def read_switches(engine: str, words: Iterable[str]) -> Switches:
    """Options and values of a command's words; words before, between and after them may be the model.

    Raises:
        ConfigError: an option that no release of the engine has, with the nearest that one has.
    """
    result, queue = Switches(engine), list(words)
    table = options_of(engine)
    at, option = 0, ""
    while at < len(queue):
        word = queue[at]
        at += 1
        if not OPTION.match(word):
            _store(result, table[option].takes if option else "1", option, word)
            continue
        name, equals, value = word.partition("=")
        option, key, denied = _resolve(engine, name)
        takes = table[option].takes
        if not equals and (key or takes in ("1", "?")) and at < len(queue) and not OPTION.match(queue[at]):
            value = queue[at]
            at += 1
        if key:
            tree = result.mapping(option)
            _put(tree, key, value)
            value = dumps(tree)
        result.given[option] = "false" if denied else value
        result.written[option] = name.partition(".")[0] if key else name
    return result


def _store(switches: Switches, takes: str, option: str, word: str) -> None:
    """A word that is no option: one more value of the option before it, or the model.

    Raises:
        ConfigError: neither.
    """
    before = switches.given.get(option, "")
    if option and (takes in ("+", "") or (takes == "0" and word.lower() in FLAGS)):
        switches.given[option] = f"{before} {word}".strip()
    elif not switches.model:
        switches.model = word
    elif word.strip("\\ "):
        where = f"after {switches.shown(option)} {before}".strip() if option else f"after the model {switches.model}"
        raise ConfigError(f"--from: {word!r} {where} belongs to no option of {ENGINES[switches.engine]}")


def _resolve(engine: str, written: str) -> tuple[str, list[str], bool]:
    """Name of the option that was meant, the keys behind its dots, and whether it is taken away (`--no-X`).

    Raises:
        ConfigError: no release has it.
    """
    table = options_of(engine)
    plain = _plain(written)
    if plain in table:
        return table[plain].name, [], False
    if plain.startswith("no-") and plain[3:] in table:
        return table[plain[3:]].name, [], True
    base, dot, key = written.partition(".")
    if dot and engine != "torchtitan" and _plain(base) in table:
        return table[_plain(base)].name, key.rstrip("+").split("."), False
    if re.fullmatch(r"-O\d", written) and "O" in table:
        return table["O"].name, [], False
    begun = {table[name].name for name in table if written.startswith("--") and name.startswith(plain)}
    if len(begun) == 1:
        return begun.pop(), [], False  # argparse takes the beginning of one option for it
    if begun and (sized := table.get(f"{plain}-size")):
        return sized.name, [], False
    names = [f"--{name}" for name in table if len(name) > 3] + [f"-{name}" for name in table if len(name) <= 3]
    hint = suggestion(f"--{plain}" if written.startswith("--") else written, names)
    raise ConfigError(f"--from: {ENGINES[engine]} has no option {written!r}{hint}")


def _put(tree: dict[str, Any], keys: list[str], value: str) -> None:
    """A value under keys, as JSON has it where it is JSON."""
    for key in keys[:-1]:
        inner = tree.get(key)
        tree[key] = tree = inner if is_mapping(inner) else {}
    try:
        tree[keys[-1]] = tree_of_json(value, "--from")
    except ConfigError:
        tree[keys[-1]] = value


def switches_of_mapping(engine: str, tree: Mapping[str, Any]) -> Switches:
    """Options of a file of settings (`--config FILE.yaml`): keys are names, flags are true or false.

    Raises:
        ConfigError: a key that no release has as an option.
    """
    words = list(_words(tree))
    result = read_switches(engine, words)
    if isinstance(model := tree.get("model_tag", tree.get("model")), str):
        result.model = model
    return result


def _words(tree: Mapping[str, Any]) -> Iterator[str]:
    for key, value in tree.items():
        name = f"--{key}"
        if key in ("model_tag", "model"):
            continue
        if isinstance(value, bool):
            yield f"{name}={str(value).lower()}"
        elif isinstance(value, dict | list):
            yield f"{name}={dumps(value)}"
        elif value is not None:
            yield f"{name}={value}"


# Layers of pipeline stages as launch commands say them: embedding and head as layers, shorter ends, a layout in
# words.
#
# A layout of Megatron (`--pipeline-model-parallel-layout`) lists chunks between bars: `E` the embedding, `t` a layer,
# `L` the loss, `m` a module that predicts ahead; `t*3` and `(tt|)*2` repeat.


MOST = 100_000  # characters of a layout once its repetitions are written out
MOST_WORDS = 5_000  # as it is given
GROUP, ONE = re.compile(r"\(([EtmL|,]*)\)\*(\d{1,5})"), re.compile(r"([EtmL|])\*(\d{1,5})")


class Ends(NamedTuple):
    """Layers that first and last stage have less than others, and chunks of a stage where a layout says them."""

    first: int = 0
    last: int = 0
    chunks: int = 0
    note: str = ""


def megatron_ends(switches: Switches, layers: int, pp: int, chunks: int) -> Ends:
    """Plan fields of Megatron's switches for pipeline layouts.

    Raises:
        ConfigError: ends that leave stages between them without whole layers, a layout that is none.
    """
    text = switches.text("pipeline-model-parallel-layout")
    if text:
        return ends_of_layout(text, layers, pp)
    first, last = (
        switches.number(f"decoder-{end}-pipeline-num-layers", default=0, low=0)
        if switches.has(f"decoder-{end}-pipeline-num-layers")
        else None
        for end in ("first", "last")
    )
    if first is None and last is None:
        embedding, loss = (int(switches.has(f"account-for-{part}-in-pipeline-split")) for part in ("embedding", "loss"))
        if (embedding or loss) and layers and (layers + embedding + loss) % (pp * chunks):
            raise ConfigError(
                f"--from: {layers} layers with {embedding + loss} for embedding and loss do not divide over"
                f" {pp} stages of {chunks} chunks (Megatron: --account-for-embedding-in-pipeline-split)"
            )
        both = min(embedding, loss) if pp * chunks == 2 else 0  # of two chunks each is an end: equal ones
        return Ends(embedding - both, loss - both)
    between = pp - (first is not None) - (last is not None)
    rest = layers - (first or 0) - (last or 0)
    if between < 1 or rest < 0 or rest % between:
        raise ConfigError(
            f"--from: {rest} layers do not divide over the {max(between, 0)} stages between first and last"
            " (Megatron: --decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers)"
        )
    full = rest // between
    less = [0 if end is None else full - end for end in (first, last)]
    if min(less) < 0:
        return Ends(note="a first or last stage with more layers than others: the model has equal stages there")
    return Ends(less[0], less[1])


def ends_of_layout(text: str, layers: int, pp: int) -> Ends:
    """Plan fields of a pipeline layout string, as Megatron writes it.

    Raises:
        ConfigError: no layout of these layers over these stages.
    """
    what = f"--from: --pipeline-model-parallel-layout {text[:60]!r}"
    written = _written_out(text.replace(" ", ""), what)
    chunks = written.split("|")
    counts = [chunk.count("t") for chunk in chunks]
    if not written.startswith("E") or "L" not in chunks[-1]:
        raise ConfigError(f"{what} has no embedding E first or no loss L last")
    if len(chunks) % pp:
        raise ConfigError(f"{what} has {len(chunks)} chunks, no multiple of {pp} stages")
    if layers and sum(counts) != layers:
        raise ConfigError(f"{what} has {sum(counts)} layers, the model {layers}")
    full = max(counts)
    inner = counts[1:-1]
    if any(count != full for count in inner):
        return Ends(chunks=len(chunks) // pp, note="stages between first and last differ: the model has equal ones")
    return Ends(full - counts[0], full - counts[-1], len(chunks) // pp)


def _written_out(text: str, what: str) -> str:
    """A layout without repetitions."""
    if len(text) > MOST_WORDS:
        raise ConfigError(f"{what} is longer than {MOST_WORDS:,} characters")
    for pattern in (ONE, GROUP):
        while one := pattern.search(text):
            if len(one[1]) * int(one[2]) > MOST or len(text) > MOST:
                raise ConfigError(f"{what} is longer than {MOST:,} layers")
            text = text[: one.start()] + one[1] * int(one[2]) + text[one.end() :]
    if not re.fullmatch(r"[EtmL|,]+", text):
        raise ConfigError(f"{what} has other words than E, t, m, L, |, * and brackets")
    return text.replace(",", "")


def layout_text(layers: int, chunks: int, first: int, last: int) -> str:
    """A layout of so many chunks whose ends have fewer layers."""
    each = (layers + first + last) // chunks
    ends = f"E{'t' * (each - first)}", f"{'t' * (each - last)}L"
    between = f"|({'t' * each}|)*{chunks - 2}" if chunks > 2 else "|"
    return f"{ends[0]}{between}{ends[1]}"


def titan_ends(switches: Switches, layers: int, pp: int) -> tuple[int, int]:
    """Layers that torchtitan takes off the first and the last stage: one each where nothing is said."""
    if pp == 1 or not layers:
        return 0, 0
    first, last = (
        switches.number(f"parallelism.pipeline-parallel-{end}-stage-less-layers", default=1, low=0)
        for end in ("first", "last")
    )
    return first, last


def model_file(option: str) -> Mapping[str, Any]:
    """A model's file, whichever package it is written for."""
    path = conf_dir() / "model" / f"{option}.yaml"
    node: Any = read_yaml(path) if path.is_file() else {}
    for key in ("workload", "model"):
        node = node.get(key, node) if is_mapping(node) else {}
    return node if is_mapping(node) else {}


def finished(
    overrides: list[str], plan: Mapping[str, str], devices: int, ranks: int, switches: Switches, notes: list[str]
) -> tuple[list[str], list[str]]:
    """Overrides with the number of devices, and lines.

    Raises:
        ConfigError: devices that the degrees do not divide.
    """
    if devices and devices % ranks:
        raise ConfigError(
            f"--from: {devices:,} devices are no multiple of the {ranks:,} that tensor, pipeline and context ranks take"
        )
    if not devices:
        notes.append(
            f"no launcher says how many devices there are: {ranks:,}, one replica; cluster.device_count says more"
        )
    lines = [f"cluster.device_count={devices or ranks}", *(f"plan.{key}={value}" for key, value in plan.items())]
    return [*overrides, *lines], [*notes, *not_modelled_line([switches])]
