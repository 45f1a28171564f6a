"""`codesign evaluate --from "vllm serve ..."`: a launch command read back as overrides of a design."""

import csv
import functools
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ..core.errors import ConfigError, suggestion
from ..core.resources import conf_dir
from ..core.untrusted_io import read_text
from .export_command import OPTIONS, known_options
from .export_plan import published

READ = {"vllm": "vllm serve MODEL ...", "sglang": "python -m sglang.launch_server --model-path MODEL ..."}
FP8 = ("fp8", "fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "w8a8_fp8", "fp8_e4m3", "fp8_e5m2")
IN_FP8 = ("deepseek_v3", "deepseek_v32", "deepseek_r1", "kimi_k2")
"""Models whose published checkpoint is in fp8, by the quantization_config of their config.json; engines follow it."""
PLAIN = ("auto", "bfloat16", "bf16", "half", "float16")
"""Formats that the neutral workload has: two bytes."""


class Launch(NamedTuple):
    """What a command says, in overrides, and a line for each switch that no override takes."""

    overrides: tuple[str, ...]
    left: tuple[str, ...]


class Switches:
    """Values by the names under which they are looked up; what nobody looks up is left aside."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Of canonical option -> value."""
        self.given, self.asked = dict(given), set[str]()

    def number(self, option: str, default: int = 1) -> int:
        """Raises:
        ConfigError: no whole number of at least 1.
        """
        self.asked.add(option)
        text = self.given.get(option, str(default))
        if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
            raise ConfigError(f"--from: {option} {text!r} is no whole number of at least 1")
        return int(text)

    def has(self, option: str) -> bool:
        """Whether it is there."""
        self.asked.add(option)
        return option in self.given

    def text(self, option: str, default: str) -> str:
        """Its value."""
        self.asked.add(option)
        return self.given.get(option, default)


def read_launch(text: str) -> Launch:
    """Overrides of a command.

    Raises:
        ConfigError: a program, switch, choice or model that is not known.
    """
    try:
        words = shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        raise ConfigError(f"--from: {text!r} cannot be read as words of a shell: {error}") from None
    if words[:2] == ["vllm", "serve"]:
        return _launch("vllm", words[2:])
    if "sglang.launch_server" in words[:3]:
        return _launch("sglang", words[words.index("sglang.launch_server") + 1 :])
    start = " ".join(words[:3])
    raise ConfigError(f"--from: {start!r} is no command that is read: {' or '.join(map(repr, READ.values()))}")


def with_launch(text: str, overrides: Iterable[str]) -> Launch:
    """Overrides of a command, but for those keys that are overridden besides, and lines on what was read."""
    found, own = read_launch(text), list(overrides)
    said = {one.partition("=")[0].lstrip("+~") for one in own}
    kept = [one for one in found.overrides if one.partition("=")[0] not in said]
    return Launch((*kept, *own), (f"read as: {' '.join(kept)}", *found.left))


def _launch(engine: str, words: list[str]) -> Launch:
    given, written = _given(engine, words)
    found = Switches(given)
    model, experts, in_fp8 = _model(found.text("--model-path" if engine == "sglang" else "MODEL", ""))
    plan, notes = (_vllm if engine == "vllm" else _sglang)(found, experts)
    overrides = [
        *model,
        *_formats(found, notes, in_fp8=in_fp8),
        f"framework={engine}",
        *(f"{key}={plan[key]}" for key in plan),
    ]
    left = [f"{written[option]} {value}".strip() for option, value in given.items() if option not in found.asked]
    return Launch(tuple(overrides), (*notes, *(f"left aside: {one}" for one in left)))


def _given(engine: str, words: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Canonical option -> value, and -> as it was written; a word before all options is the model."""
    found, written = dict[str, str](), {"MODEL": "model"}
    option = "MODEL"
    for word in words:
        if word.startswith("-"):
            name, _, value = word.partition("=")
            option = _canonical(engine, name)
            found[option], written[option] = value, name
        else:
            found[option] = f"{found.get(option, '')} {word}".strip()
    for name, value in found.items():
        allowed = known_options(engine).get(name, ())
        if value and allowed and value not in allowed:
            raise ConfigError(
                f"--from: {written[name]} {value!r} is not one of its choices{suggestion(value, allowed)}"
            )
    return found, written


def _canonical(engine: str, option: str) -> str:
    """The longest of an option's names; underscores are hyphens there.

    Raises:
        ConfigError: the engine's parser has no such option.
    """
    names = _names(engine)
    plain = option if option in names else option.replace("_", "-")
    if plain.startswith("--no-") and "--" + plain[5:] in names:
        plain = "--" + plain[5:]
        return "--no-" + names[plain][2:]
    begun = {names[name] for name in names if plain.startswith("--") and name.startswith(plain)}
    if plain not in names and len(begun) == 1:
        return begun.pop()  # argparse takes the beginning of one option for it
    if plain not in names:
        raise ConfigError(f"--from: {engine} has no option {option!r}{suggestion(option, names)}")
    return names[plain]


@functools.cache
def _names(engine: str) -> dict[str, str]:
    """Each name of an option -> its longest; names of one option stand at one place of the parser."""
    with (OPTIONS / f"{engine}.csv").open(newline="", encoding="utf-8") as file:
        rows = [(row["option"], row["at"]) for row in csv.DictReader(file)]
    longest: dict[str, str] = {}
    for option, at in rows:
        longest[at] = max(longest.get(at, ""), option, key=len)
    return {option: option if "." in option else longest[at] for option, at in rows}


def _model(name: str) -> tuple[list[str], bool, bool]:
    """Overrides that choose a model, by its published name or the `config.json` of a folder.

    Also whether it has experts, and whether its checkpoint is in fp8.

    Raises:
        ConfigError: neither.
    """
    path = Path(name) / "config.json"
    if name and os.path.isfile(path):  # False of what can be no file: too long, or not printable
        text = read_text(path, "model")
        return (
            ["model=hf_config", f"model.path={path}"],
            "experts" in text,
            bool(re.search('"quant_method": *"fp8"', text)),
        )
    known = {
        published(path.stem).removesuffix("-Instruct"): path for path in sorted((conf_dir() / "model").glob("*.yaml"))
    }
    known.pop("", None)
    plain = name.removesuffix("-Instruct")
    if not name:
        raise ConfigError("--from: the command names no model: 'vllm serve MODEL ...', or --model-path MODEL")
    if plain not in known:
        raise ConfigError(f"--from: {name!r} is no model of the catalogue{suggestion(plain, known)}")
    own = known[plain].stem
    return [f"model={own}"], "experts:" in read_text(known[plain], "model"), own in IN_FP8


def _formats(found: Switches, notes: list[str], *, in_fp8: bool) -> list[str]:
    """Of weights and cache; products are taken to be in the weights' format, and these in the checkpoint's."""
    weights, cache = found.text("--quantization", "auto"), found.text("--kv-cache-dtype", "auto")
    dtype = found.text("--dtype", "auto")
    for option, value in (("--quantization", weights), ("--kv-cache-dtype", cache), ("--dtype", dtype)):
        if value not in (*FP8, *PLAIN):
            notes.append(f"left aside: {option} {value}, priced as two bytes a number")
    if in_fp8 and weights == "auto":
        weights = "fp8"
        notes.append("the published checkpoint is in fp8: so are weights and products here")
    if weights not in FP8 and cache not in FP8:
        return ["workload=continuous"]
    formats = {"compute": weights, "weights": weights, "kv_cache": cache}
    short = {tensor: "fp8" if value in FP8 else "bf16" for tensor, value in formats.items()}
    return ["workload=continuous_fp8", *(f"workload.precision.{key}={value}" for key, value in short.items())]


def _vllm(found: Switches, experts: bool) -> tuple[dict[str, int], list[str]]:
    """Fields of the plan; see `export_vllm` for what they are there."""
    tp, pp = found.number("--tensor-parallel-size"), found.number("--pipeline-parallel-size")
    cp, ranks = found.number("--prefill-context-parallel-size"), found.number("--data-parallel-size")
    shared = found.has("--enable-expert-parallel") and experts
    groups = ranks if experts and not shared else 1
    plan, notes = (
        {"cluster.device_count": tp * pp * cp * ranks, "plan.tp": tp * groups, "plan.pp": pp, "plan.cp": cp},
        [],
    )
    plan |= {"plan.ep": ranks if shared else 1, "plan.attention_dp": groups}
    if shared and tp > 1:
        notes.append("experts lie whole on ranks there; the model cuts each over the tensor ranks")
    sequences = _sequences(found, "--max-num-seqs", groups, notes)
    plan |= sequences
    if found.has("--max-num-batched-tokens"):
        decodes = sequences.get("plan.micro_batch", 0) // (groups * pp)
        plan["plan.token_budget"] = max(found.number("--max-num-batched-tokens") - decodes, 1)
    else:
        notes.append("--max-num-batched-tokens is not said: plan.token_budget is the default of codesign")
    return plan, notes + _length(found, "--max-model-len")


def _sglang(found: Switches, experts: bool) -> tuple[dict[str, int], list[str]]:
    """Fields of the plan; see `export_sglang` for what they are there."""
    ranks, pp = found.number("--tensor-parallel-size"), found.number("--pipeline-parallel-size")
    replicas, groups = found.number("--data-parallel-size"), found.number("--attention-data-parallel-size")
    if found.has("--enable-dp-attention") and groups == 1:
        groups, replicas = replicas, 1
    if ranks % groups:
        raise ConfigError(f"--from: {groups} attention groups do not divide {ranks} tensor ranks")
    whole = found.number("--expert-parallel-size") > 1 and experts
    sharing = groups if whole else 1
    plan: dict[str, int] = {"cluster.device_count": ranks * pp * replicas, "plan.tp": ranks // sharing, "plan.pp": pp}
    plan |= {"plan.ep": sharing, "plan.attention_dp": groups // sharing}
    notes: list[str] = []
    if whole and ranks > groups:
        notes.append("experts lie whole on ranks there; the model cuts each over the tensor ranks")
    if found.has("--max-running-requests"):
        plan["plan.micro_batch"] = max(found.number("--max-running-requests") // sharing, 1)
    else:
        notes.append("--max-running-requests is not said: plan.micro_batch is the default of codesign")
    if found.has("--chunked-prefill-size"):
        plan["plan.token_budget"] = max(found.number("--chunked-prefill-size") // groups, 1)
    else:
        notes.append("--chunked-prefill-size is not said: plan.token_budget is the default of codesign")
    found.has("--enable-mixed-chunk")
    return plan, notes + _length(found, "--context-length")


def _sequences(found: Switches, option: str, groups: int, notes: list[str]) -> dict[str, int]:
    """Decoded together by a replica, whose groups have so many each."""
    if found.has(option):
        return {"plan.micro_batch": found.number(option) * groups}
    notes.append(f"{option} is not said: plan.micro_batch is the default of codesign")
    return {}


def _length(found: Switches, option: str) -> list[str]:
    """A bound is no mean."""
    if not found.has(option):
        return []
    return [f"{option} is a bound: workload.input_tokens and output_tokens say what requests are priced"]
