"""Malformed command lines and files, made by seeds and given to `codesign evaluate` in this process.

    python qa/malformed.py --count 5000 --seed 0
    python qa/malformed.py --count 200 --seed 7 --show 5      examples of each end

A case takes a design that can run and makes one or two mistakes in it: counts that are not whole, nulls, numbers below
or beyond all that is allowed, base 60, a list in place of a number, names that stand twice, groups that are deleted. It
ends well where it is refused in one line with exit code 2, or where it is priced and its numbers are sound. Findings
are tracebacks, other exit codes, several lines, what takes more than `LONGEST_S` of the processor, and silent nonsense:
a design that is priced with a time that is none, with more used than there is, or with a count that is no whole number.
"""

import argparse
import contextlib
import io
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [root] if (root := str(Path(__file__).resolve().parent.parent)) not in sys.path else []

from codesign.commands import main as codesign
from codesign.commands import prepare_jax
from codesign.config import compose, plain

LONGEST_S, LONGEST_LINE = 60, 2_000
TOLERANCE = 1e-6  # of a used share
ROOFLINE = "calibration=h100_sxm_roofline"  # its formulas are short to trace
BASES: dict[str, tuple[list[str], int]] = {
    "training": ([ROOFLINE], 10),
    "experts": ([ROOFLINE, "model=mixtral_8x7b", "cluster.device_count=64", "plan=megatron_3d", "plan.tp=8"], 3),
    "serving": ([ROOFLINE, "model=llama31_8b", "workload=static_batch", "cluster.device_count=16"], 3),
    "queues": ([ROOFLINE, "experiment=busy_node"], 2),
    "pools": (["experiment=disaggregation", "plan.prefill_devices=8", "plan.prefill_tp=8"], 1),
}
"""Designs that can run, with how often they are taken."""

HEADLINES = (
    *("time_s", "tokens_per_s", "mfu", "energy_j", "joules_per_token", "power_w", "provisioned_power_w", "capex_usd"),
    *("usd_per_million_tokens", "ttft_s", "tpot_s", "requests_per_s"),
)
COUNTS = {
    *("tp", "pp", "cp", "ep", "virtual_stages", "micro_batch", "token_budget", "attention_dp", "recompute", "zero"),
    *("sequence_parallel", "prefill_devices", "prefill_tp", "prefill_pp", "device_count", "seed", "global_batch"),
    *("layers", "hidden", "heads", "kv_heads", "experts", "top_k", "endpoints", "radix", "rails", "sequence"),
}
"""Names of keys that count something: a part of one must not be taken."""

HOSTILE = (
    *("0", "-1", "-0.5", "nan", "inf", "-inf", ".nan", "1e30", "-1e30", "1e308", "1e-308", "1e400", "null", "~", "''"),
    *("1:30:00", "'1:30:00'", "1:30.5", "010", "0x10", "1_0", "[]", "{}", "[1]", "[1,1]", "[[1]]", "{a: 1}", "true"),
    *("no", "fast", "8 8", "5parsec", "3B", "0.5", "1.5", "8.0000001", "2.5e0", "99999999999999999999", "${seed}"),
)
BESIDE = ("provenance", "_target_", "silicon", "aliases", "prefixes", "relatives", "like", "name")
"""Keys that change no number of a design."""

DELETED = (
    *("plan", "cluster", "workload", "model", "space", "objective", "search", "accelerator", "host", "facility"),
    *("fabric", "scale_out", "collective", "calibration", "runner", "memory", "prefill", "experiment"),
)


class Case(NamedTuple):
    """A command line, and whether it may be priced: what counts is not whole, or a name stands twice, where not."""

    words: list[str]
    sound: bool


@dataclass
class Tally:
    """How cases ended, examples of each end, and findings."""

    ends: Counter[str] = field(default_factory=Counter[str])
    examples: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    findings: list[str] = field(default_factory=list[str])

    def add(self, end: str, told: str, *, found: bool) -> None:
        """One more case."""
        self.ends[end] += 1
        self.examples.setdefault(end, []).append(told)
        if found:
            self.findings.append(f"{end}: {told}")


class _TooSlow(BaseException):
    """Not an Exception, so that nothing in between takes it for bad input."""


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything below a configuration that an override may name."""
    for key, value in node.items():
        here = f"{path}.{key}" if path else str(key)
        if key in BESIDE or not str(key).isidentifier():
            continue
        yield here, value
        if isinstance(value, dict):
            yield from leaves(value, here)


class Maker:
    """Cases of a seed.

    Args:
        seed: of the draws.
        folder: for files that are tried.
    """

    def __init__(self, seed: int, folder: Path, bases: Sequence[str] = tuple(BASES)) -> None:
        self.rng, self.folder, self.number = random.Random(seed), folder, 0
        self.bases = {name: BASES[name] for name in bases}
        self.keys: dict[str, list[tuple[str, Any]]] = {}

    def case(self) -> Case:
        """The next one."""
        self.number += 1
        names, shares = list(self.bases), [share for _, share in self.bases.values()]
        base = self.rng.choices(names, shares)[0]
        words, sound = list(self.bases[base][0]), True
        kinds: list[tuple[Callable[[str], Case], int]] = [
            (self.value, 60), (self.count, 25), (self.gone, 12), (self.topology, 8), (self.own_file, 6), (self.hub, 6),
            (self.requests, 6),
        ]  # fmt: skip
        for _ in range(self.rng.choice((1, 1, 1, 2))):
            make = self.rng.choices([one for one, _ in kinds], [share for _, share in kinds])[0]
            more = make(base)
            words, sound = words + more.words, sound and more.sound
        return Case(["evaluate", "--json", *words], sound)

    def known(self, base: str) -> list[tuple[str, Any]]:
        """Keys of a base with their values."""
        if base not in self.keys:
            asked = self.bases[base][0]
            everything = leaves(plain(compose(asked), asked))
            roots = ("cluster", "workload", "plan", "seed")
            self.keys[base] = [(key, value) for key, value in everything if key.split(".")[0] in roots]
        return self.keys[base]

    def value(self, base: str) -> Case:
        """Any key with something that it may not have, or a number that is far from its own."""
        key, old = self.rng.choice(self.known(base))
        new = self.rng.choice(HOSTILE)
        if isinstance(old, float | int) and not isinstance(old, bool) and self.rng.random() < 0.3:
            new = repr(old * self.rng.choice((-1, 1e-30, 1e30, 1e15, 1e-15, 1e9, 1e-9, 0.3, 1 + 1e-7)))
        return Case([f"{self.rng.choice(('', '', '', '+', '++'))}{key}={new}"], _is_sound(key, new))

    def count(self, base: str) -> Case:
        """A key that counts something, with a part of one."""
        keys = [(key, old) for key, old in self.known(base) if key.rpartition(".")[2] in COUNTS]
        key, old = self.rng.choice(keys)
        own = float(old) if isinstance(old, float | int) else 2.0
        part = self.rng.choice((0.5, 1e-7, 0.25, 1 / 3, 1e-9))
        new = self.rng.choice((repr(own + part), repr(own - part), "null", "0", "-1", "nan", "1:30:00", f"[{own:g}]"))
        return Case([f"{key}={new}"], _is_sound(key, new))

    def gone(self, base: str) -> Case:
        """A group or a part that is deleted, or stands there with nothing in it."""
        parts = [key for key, value in self.known(base) if isinstance(value, dict | list)]
        part = self.rng.choice((*DELETED, *parts, "cluster.levels", "cluster.network", "seed", "name"))
        new = self.rng.choice(("~{}", "{}=[]", "{}={{}}", "{}=null", "{}=0", "{}=''", "{}=[[]]", "~{}=1", "{}=[a,a]"))
        doubled = part == "cluster.levels" and new.endswith("[a,a]")
        return Case([new.format(part)], not doubled)

    def file(self, name: str, text: str) -> Path:
        """A file that holds a text."""
        path = self.folder / str(self.number) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def topology(self, base: str) -> Case:
        """An edge list or node-link JSON with a name that stands twice, or a number that is none."""
        del base
        if self.rng.random() < 0.5:
            nodes = [{"id": name, "endpoint": number} for number, name in enumerate("abcdefgh")] + [{"id": "s"}]
            place = self.rng.randrange(8)
            nodes[place]["endpoint"] = self.rng.choice(((place + 1) % 8, 9, -1, 0.5))
            links = [{"source": name, "target": "s", "bandwidth_bytes_per_s": 4.5e11} for name in "abcdefgh"]
            tree = {"directed": False, "multigraph": False, "graph": {}, "nodes": nodes, "links": links}
            path = self.file("rack.json", json.dumps(tree))
        else:
            names, rate = list("abcdefgh"), "4.5e+11"
            names[self.rng.randrange(8)] = self.rng.choice(names)
            if len(set(names)) == len(names):
                rate = self.rng.choice(("1:30:00", "-1", ".nan", "fast", "[1]", "null"))
            edges = "".join(f"  - {{from: {name}, to: s, bandwidth_bytes_per_s: {rate}}}\n" for name in "abcdefgh")
            path = self.file("rack.yaml", f"endpoints: [{', '.join(names)}]\nedges:\n{edges}")
        return Case(["fabric=topology_file", f"cluster.network.scale_up.fabric.path={path}"], sound=False)

    def own_file(self, base: str) -> Case:
        """A file of one's own with a number that YAML reads in base 60, or a count that is none."""
        del base
        bad = self.rng.choice(("tp: 1:30", "tp: 8.5", "pp: 010", "micro_batch: 1.5", "zero: 1:30", "tp: 8\ntp: 4"))
        text = f"# Mine\n_target_: codesign.model.workloads.Plan\n{bad}\n"
        folder = self.file("plan/mine.yaml", text).parent.parent
        return Case(["--conf", str(folder), "plan=mine"], sound=False)

    def hub(self, base: str) -> Case:
        """A `config.json` with a value of another type, or more experts of a token than there are."""
        del base
        tree: dict[str, Any] = {
            "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 4096,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
            "intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": False,
            "max_position_embeddings": 32768,
        }  # fmt: skip
        key = self.rng.choice([key for key in tree if key != "tie_word_embeddings"])
        tree[key] = 9 if key == "num_experts_per_tok" else self.rng.choice(([1], {"a": 1}, -1, 0.5, True, [[]]))
        path = self.file("config.json", json.dumps(tree))
        return Case(["model=hf_config", f"model.path={path}"], sound=False)

    def requests(self, base: str) -> Case:
        """A trace with an arrival before the first, a part of a token, or more requests than anybody answers."""
        del base
        rows = [[number * 0.5, 100 + number, 20 + number] for number in range(20)]
        column = self.rng.randrange(3)
        wrong = (-5.0, math.nan, math.inf) if column == 0 else (0.5, 7.25, -3)
        rows[self.rng.randrange(1, 19)][column] = self.rng.choice(wrong)
        if self.rng.random() < 0.2:
            rows = [[number * 1e-30, 100, 20] for number in range(20)]
        text = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows)
        path = self.file("requests.csv", text)
        return Case(["model=llama31_8b", "workload=at_rate", f"workload.trace={path}"], sound=False)


def _is_sound(key: str, new: str) -> bool:
    """Whether a value may be taken: not a part of a thing that counts, and nothing that is no number."""
    name = key.rpartition(".")[2]
    with contextlib.suppress(ValueError):
        number = float(new)
        return math.isfinite(number) and (name not in COUNTS or number.is_integer())
    return not (key == "seed" or new in ("nan", "inf", "-inf"))


def outcome(case: Case) -> tuple[str, str, bool]:
    """(how a case ended, details, whether that is a finding)."""
    told, out, err = " ".join(case.words[2:]), io.StringIO(), io.StringIO()
    before = signal.signal(signal.SIGPROF, _ring)
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = codesign(case.words)
    except _TooSlow:
        return "hang", told, True
    except BaseException as error:  # what a user would see as a traceback
        where = traceback.extract_tb(error.__traceback__)[-1]
        return (
            "traceback",
            f"{told}\n    {type(error).__name__}: {error!s:.200} ({where.filename}:{where.lineno})",
            True,
        )
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    said = err.getvalue()
    if code == 2:
        if said.count("\n") != 1 or len(said) > LONGEST_LINE or out.getvalue():
            return "refused in other than one line", f"{told}\n    {said[:300]!r}", True
        return "refused", f"{told}\n    {said.strip()}", False
    if code != 0:
        return f"exit code {code}", f"{told}\n    {said[:300]}", True
    wrong = nonsense(json.loads(out.getvalue())) or ("" if case.sound else "taken as it is")
    return ("silent nonsense", f"{told}\n    {wrong}", True) if wrong else ("priced", told, False)


def _ring(*_: object) -> None:
    raise _TooSlow


def nonsense(numbers: dict[str, Any]) -> str:
    """What of the numbers of a design cannot be; empty where all can."""
    for name in HEADLINES:
        value = numbers.get(name, 1.0)
        least = value > 0 if name in ("time_s", "tokens_per_s") and value is not None else True
        if not isinstance(value, float | int) or not 0 <= value < math.inf or not least:
            return f"{name} = {value!r}"
    for name, value in numbers.items():
        part = name.startswith(("usage.", "violations."))
        most = 0 if name.startswith("violations.") else 1 + TOLERANCE
        if part and (not isinstance(value, float | int) or not value <= most):
            return f"{name} = {value!r}"
    return ""


def run(count: int, seed: int, folder: Path, bases: Sequence[str] = tuple(BASES), *, quiet: bool = False) -> Tally:
    """So many cases of a seed."""
    prepare_jax()
    maker, tally, began, shown = Maker(seed, folder, bases), Tally(), time.process_time(), time.monotonic()
    for number in range(1, count + 1):
        end, told, result = outcome(maker.case())
        tally.add(end, told, found=result)
        if result and not quiet:
            print(f"{end}: {told}", file=sys.stderr, flush=True)
        if not quiet and (time.monotonic() - shown > 5 or number == count):
            shown, took = time.monotonic(), time.process_time() - began
            ends = ", ".join(f"{times:,} {name}" for name, times in tally.ends.most_common())
            print(f"{number:,} of {count:,}: {ends}; {took:.0f} CPU s", file=sys.stderr, flush=True)
    return tally


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print findings and a summary line; 1 where there is a finding."""
    parser = argparse.ArgumentParser(prog="python qa/malformed.py")
    parser.add_argument("--count", type=int, default=5000, help="cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bases", nargs="*", default=list(BASES), choices=list(BASES), help="designs that are taken")
    parser.add_argument("--show", type=int, default=0, help="examples of each end")
    asked = parser.parse_args(arguments)
    began = time.process_time()
    with tempfile.TemporaryDirectory(prefix="codesign-malformed-") as folder:
        os.chdir(folder)
        tally = run(asked.count, asked.seed, Path(folder), asked.bases)
        left = sorted(path.name for path in Path(folder).iterdir() if not path.name.isdigit())
        os.chdir(Path(__file__).parent)
    for end, examples in tally.examples.items():
        for told in examples[: asked.show]:
            print(f"{end}: {told}")
    for told in tally.findings:
        print(told)
    if left:
        print(f"left behind: {', '.join(left)}")
    ends = ", ".join(f"{times:,} {name}" for name, times in tally.ends.most_common())
    took = time.process_time() - began
    print(f"{asked.count:,} cases of seed {asked.seed}: {ends}; {len(tally.findings)} findings; {took:.0f} CPU s")
    return 1 if tally.findings or left else 0


if __name__ == "__main__":
    raise SystemExit(main())
