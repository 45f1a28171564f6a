"""Run folders changed by hand, each given to `codesign verify`, which must refuse it.

A few small runs are made once. Every trial copies one, changes one thing, and verifies the copy: a number, a word, a
row, a column, a whole file; as it is, with the checksums of `written.json` made anew, or with all checksums made anew.

    python qa/tamper.py --count 200 --seed 0

prints how many changes of each kind were refused and exits with 1 if one was accepted that matters, or ended in a
traceback. Accepted may be what the answer itself says is not checked, other weights that prove the same bound, and a
bound that is raised to no more than a finer search proves: it holds, and its proof is derived anew.
"""

import argparse
import contextlib
import copy
import hashlib
import io
import json
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from codesign.commands import main, rederivation
from codesign.commands.optimize import optimize
from codesign.core import checksum
from codesign.verification import bound_check

SMALL = (
    "experiment=codesign_175b", "space.plan.tp=[8]", "space.plan.pp=[8,16]", "space.plan.virtual_stages=[1,2]",
    "space.plan.micro_batch=[1]", "space.plan.offload_optimizer=[0]", "space.plan.offload_activations=[0]",
)  # fmt: skip
STUDIES = {
    "certified": (*SMALL, "search=certified", "objective.limits.capex_usd=56e6"),
    "whole": (*SMALL, "search=integer"),
    "pareto": (*SMALL, "search=pareto", "search.levels=3", "search.between=2"),
    "robust": (*SMALL, "search=robust"),
    "mix": (*SMALL, "search=mix", "search.gap=1e-2"),
}
ATTACK = "1024"  # designs: what a proof is worth is known from the numbers that it is of
AS_IS, LISTED, EVERY = "as it is", "written.json anew", "all checksums anew"
REACH = (1e-9, 1e-7, 1e-4, 1e-2, 0.3, 1.0)  # relative changes of numbers
FRAMES = ("designs", "pareto", "ops", "elasticities", "links", "workloads")
TEXTS = ("summary.json", "config.yaml", "overrides.txt", "unusual.json", "provenance.json", "versions.json")
CLAIMS = ("summary.json", "certificate/certificate.json")
CLOSE = 1e-10  # relative; numbers of frames are compared to so many digits
DIFFERENCE = 1e-11  # absolute; shares and slopes, which are differences, are compared to so many
HOLDS = "another bound that holds"
NOISE = "a number of the proof"  # changed with all checksums: often a proof of the same bound


@dataclass
class Tally:
    """What became of the trials: (kind, mode) -> outcomes; lines about those that should not have been."""

    outcomes: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def note(self, kind: str, mode: str, outcome: str, told: str) -> None:
        """One trial more."""
        self.outcomes.setdefault((kind, mode), Counter())[outcome] += 1
        if outcome in ("accepted", "traceback"):
            self.wrong.append(f"{outcome}: {kind}, {mode}: {told}")

    def count(self, outcome: str) -> int:
        """Trials that ended so."""
        return sum(result[outcome] for result in self.outcomes.values())

    def lines(self) -> list[str]:
        """A table of all kinds."""
        rows = [f"{'kind':44s} {'checksums':20s} outcomes"]
        for (kind, mode), result in sorted(self.outcomes.items()):
            rows.append(f"{kind:44s} {mode:20s} " + ", ".join(f"{n} {name}" for name, n in sorted(result.items())))
        return rows


def make_runs(root: Path, names: Sequence[str], more: Sequence[str] = ()) -> dict[str, Path]:
    """One run folder a study."""
    result: dict[str, Path] = {}
    for name in names:
        with quiet() as out:
            code = optimize([*STUDIES[name], *more, f"name={name}"], root / name)
        if code:
            raise SystemExit(f"{name}: no run, exit code {code}: {out.getvalue()[-400:]}")
        result[name] = next((root / name).iterdir())
    return result


def proven(root: Path, name: str) -> float:
    """The bound that a search of this study proves with a hundredth of its gap."""
    folder = make_runs(root, [name], ("search.gap=1e-4",))[name]
    return float(json.loads((folder / "summary.json").read_text())["certificate"]["bound"])


@contextlib.contextmanager
def quiet():
    """Whatever is printed, kept."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        yield out


def verified(folder: Path) -> tuple[str, str]:
    """(refused, accepted or traceback; what was printed) of one folder."""
    with quiet() as out:
        try:
            code = main(["verify", str(folder), "--attack", ATTACK])
        except BaseException:
            return "traceback", traceback.format_exc()[-600:]
    text = out.getvalue()
    if "Traceback" in text:
        return "traceback", text[-600:]
    return ("accepted" if code == 0 else "refused"), text


def unchecked(text: str) -> list[str]:
    """What an answer says is not checked."""
    result = re.search(r"not checked: (.*?) verification", " ".join(text.split()))
    return [] if result is None else result.group(1).split(", ")


@contextlib.contextmanager
def once():
    """Price the same designs of the same study once, and trace its model once: both follow from nothing else."""
    priced, traced, study = rederivation.results_anew, bound_check.CheckedModel, [""]
    known: dict[Any, Any] = {}

    def results(asked: Any, folder: Any, raw: pd.DataFrame) -> Any:
        texts = [(folder.path / name).read_bytes() for name in ("config.yaml", "overrides.txt")]
        study[0] = hashlib.sha256(b" ".join(texts)).hexdigest()
        points = raw[[name for name in raw.columns if str(name).startswith("var.") or name == "method"]]
        drawn = any(str(name).endswith("_low") for name in raw.columns), repr(folder.summary.get("regret"))
        key = (study[0], points.to_csv(float_format="%.17g"), drawn, repr(folder.summary.get("errors")))
        if key not in known:
            known[key] = priced(asked, folder, raw)
        return copy.deepcopy(known[key])

    def model(asked: Any) -> Any:
        key = (study[0], asked.goal, repr(asked.values))
        if key not in known:
            known[key] = traced(asked)
        return known[key]

    rederivation.results_anew, bound_check.CheckedModel = results, model
    try:
        yield
    finally:
        rederivation.results_anew, bound_check.CheckedModel = priced, traced


# -- changes; each returns what it did, or nothing where the folder has no such thing


Change = Callable[[Path, np.random.Generator], str]


def moved(value: float, rng: np.random.Generator, least: float = 0.0) -> float:
    """Another number, by a relative change from 1e-9 to 2."""
    reach = float(rng.choice([size for size in REACH if size >= least])) * (1.0 if rng.uniform() < 0.5 else -0.5)
    return value * (1 + reach) if value else float(rng.choice([1e-6, 1.0, -1.0]))


def leaves(tree: Any, path: tuple = ()) -> list[tuple[tuple, Any]]:
    """Every value of a tree with its place."""
    if isinstance(tree, dict):
        return [leaf for key, value in tree.items() for leaf in leaves(value, (*path, key))]
    if isinstance(tree, list):
        return [leaf for key, value in enumerate(tree) for leaf in leaves(value, (*path, key))]
    return [(path, tree)]


def put(tree: Any, path: tuple, value: Any) -> None:
    """Replace one value of a tree."""
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value


def is_number(value: Any) -> bool:
    """Whether a leaf is one."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def json_leaf(name: str, wanted: Callable[[Any], bool], change: Callable[[Any, np.random.Generator], Any]) -> Change:
    """Change one value of a JSON file."""

    def told(folder: Path, rng: np.random.Generator) -> str:
        path = folder / name
        if not path.is_file():
            return ""
        tree = json.loads(path.read_text(encoding="utf-8"))
        known = [(place, value) for place, value in leaves(tree) if wanted(value)]
        if not known:
            return ""
        place, value = known[int(rng.integers(len(known)))]
        other = change(value, rng)
        put(tree, place, other)
        path.write_text(json.dumps(tree, indent=2), encoding="utf-8")
        return f"{name}: {'.'.join(map(str, place))} from {value!r} to {other!r}"

    return told


def other_kind(value: Any, rng: np.random.Generator) -> Any:
    """A value of another kind."""
    every: list[Any] = ["a word", None, [1.0, "x"], {"a": 1}, True, -3, 1e308]
    choices = [other for other in every if other is not value]
    return choices[int(rng.integers(len(choices)))]


def table(folder: Path, rng: np.random.Generator, names: Sequence[str]) -> tuple[Path, pd.DataFrame] | None:
    """One of the tables, read."""
    there = [folder / f"{name}.parquet" for name in names if (folder / f"{name}.parquet").is_file()]
    there = [(path, frame) for path in there if len(frame := pd.read_parquet(path))]
    return there[int(rng.integers(len(there)))] if there else None


def cell(names: Sequence[str], change: str, least: float = 0.0) -> Change:
    """Change one cell, row or column of a table."""

    def told(folder: Path, rng: np.random.Generator) -> str:
        result = table(folder, rng, names)
        if result is None:
            return ""
        path, frame = result
        row, column = int(rng.integers(len(frame))), str(frame.columns[int(rng.integers(frame.shape[1]))])
        if change in ("number", "nan"):
            numbers = [str(name) for name in frame if frame[name].dtype.kind in "iuf"]
            column = numbers[int(rng.integers(len(numbers)))]
            before = frame[column].iloc[row]
            frame[column] = frame[column].astype(float) if frame[column].dtype.kind == "f" else frame[column]
            after: Any = np.nan if change == "nan" else moved(float(before), rng, least)
            if frame[column].dtype.kind in "iu" and change == "number":
                after = int(before) + 1
            if change == "nan":
                frame[column] = frame[column].astype(float)
                if np.isnan(before):
                    return ""
            frame.loc[frame.index[row], column] = after
            if path.stem == "elasticities" and column != "value" and abs(after - before) < DIFFERENCE:
                return ""
            if frame[column].iloc[row] == before or (np.isnan(before) and np.isnan(frame[column].iloc[row])):
                return ""
            what = f"row {row} of {column} from {before!r} to {after!r}"
        elif change == "swap":
            other = int(rng.integers(len(frame)))
            if frame.iloc[[row]].reset_index(drop=True).equals(frame.iloc[[other]].reset_index(drop=True)):
                return ""
            order = np.arange(len(frame))
            order[[row, other]] = other, row
            frame, what = frame.iloc[order], f"rows {row} and {other} exchanged"
        elif change == "drop row":
            frame, what = frame.drop(frame.index[row]), f"row {row} left out"
        elif change == "double row":
            frame, what = pd.concat([frame, frame.iloc[[row]]]), f"row {row} twice"
        elif change == "drop column":
            frame, what = frame.drop(columns=column), f"column {column} left out"
        elif change == "rename column":
            frame, what = frame.rename(columns={column: f"{column}_"}), f"column {column} renamed"
        elif change == "add column":
            frame["also"], what = 1.0, "a column more"
        else:
            frame[column], what = "a word", f"column {column} of words"
        frame.to_parquet(path, index=False)
        return f"{path.name}: {what}"

    return told


def file_change(change: str) -> Change:
    """Leave out, rename, cut, empty or damage a whole file."""

    def told(folder: Path, rng: np.random.Generator) -> str:
        every = sorted(path for path in folder.rglob("*") if path.is_file() and "figures" not in path.parts)
        path = every[int(rng.integers(len(every)))]
        if change == "rename":
            path.rename(path.with_name(f"{path.stem}_{path.suffix}"))
        elif change == "delete":
            path.unlink()
        elif change == "cut":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        elif change == "empty":
            path.write_bytes(b"")
        else:
            data = bytearray(path.read_bytes())
            if not data:
                return ""
            data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
            path.write_bytes(bytes(data))
        return f"{path.relative_to(folder)}: {change}"

    return told


def number_of_text(name: str) -> Change:
    """Change one number in a file of text."""

    def told(folder: Path, rng: np.random.Generator) -> str:
        path = folder / name
        if not path.is_file():
            return ""
        text = path.read_text(encoding="utf-8")
        known = list(re.finditer(r"(?<![\w.])\d+\.?\d*(?:e[+-]?\d+)?(?![\w.])", text))
        if not known:
            return ""
        result = known[int(rng.integers(len(known)))]
        after = repr(moved(float(result.group()), rng))
        path.write_text(text[: result.start()] + after + text[result.end() :], encoding="utf-8")
        before = text[max(result.start() - 40, 0) : result.start()].splitlines()[-1:]
        return f"{name}: {before} {result.group()} to {after}"

    return told


def line_of_overrides(folder: Path, rng: np.random.Generator) -> str:
    """Leave out, add or repeat an override."""
    path = folder / "overrides.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    more = [
        "objective.limits.capex_usd=50e6",
        "search.gap=1e-5",
        "seed=3",
        "no.such=1",
        "plan.tp=4",
        "((",
        "=",
        "a=b=c",
    ]
    if rng.uniform() < 0.4:
        left = lines.pop(int(rng.integers(len(lines))))
        what = f"without {left}"
    else:
        lines.append(more[int(rng.integers(len(more)))])
        what = f"with {lines[-1]}"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return f"overrides.txt {what}"


def bound_raised(folder: Path, rng: np.random.Generator) -> str:
    """A bound that says more, in every file that has it, with its gap."""
    summary, header = (
        json.loads((folder / name).read_text()) for name in ("summary.json", "certificate/certificate.json")
    )
    own, claim = summary["certificate"], header["claim"]
    if own.get("bound") is None or own.get("best") is None:
        return ""
    sign = 1.0 if own["sense"] == "minimise" else -1.0
    factor = 1 + sign * float(rng.choice([1e-9, 1e-8, 1e-7, 1e-5, 1e-4]))
    digits = (
        float(f"{own['bound'] * factor:.8e}")
        if rng.uniform() < 0.5 and abs(factor - 1) > 2e-8
        else own["bound"] * factor
    )
    gap = float(np.expm1(sign * np.log(own["best"] / digits)))
    for told in (own, claim):
        told.update(bound=digits, gap=gap)
    (folder / "summary.json").write_text(json.dumps(summary, indent=2))
    (folder / "certificate/certificate.json").write_text(json.dumps(header, indent=1))
    return f"bound times {factor - 1:.1e} + 1 with its gap, to {digits!r}"


def best_lowered(folder: Path, rng: np.random.Generator) -> str:
    """A best design that is better than it is, in every file that has its value."""
    summary, header = (
        json.loads((folder / name).read_text()) for name in ("summary.json", "certificate/certificate.json")
    )
    own, claim = summary["certificate"], header["claim"]
    if own.get("bound") is None or own.get("best") is None:
        return ""
    best = own["best"] + float(rng.choice([1e-6, 0.1, 0.9])) * (own["bound"] - own["best"])
    if abs(best / own["best"] - 1) <= CLOSE:
        return ""  # the same to the digits that are compared
    sign = 1.0 if own["sense"] == "minimise" else -1.0
    for told in (own, claim):
        told.update(best=best, gap=float(np.expm1(sign * np.log(best / own["bound"]))))
    designs = pd.read_parquet(folder / "designs.parquet")
    designs.loc[0, "objective"] = best
    designs.to_parquet(folder / "designs.parquet", index=False)
    (folder / "summary.json").write_text(json.dumps(summary, indent=2))
    (folder / "certificate/certificate.json").write_text(json.dumps(header, indent=1))
    return f"best design to {best!r}"


def gap_asked(folder: Path, rng: np.random.Generator) -> str:
    """A smaller gap that was asked for than was reached, in configuration and overrides."""
    summary = json.loads((folder / "summary.json").read_text())
    gap = summary["certificate"].get("gap")
    if not gap or gap < 1e-6 or not summary["certificate"]["certified"]:
        return ""
    asked = gap * 0.5
    config, overrides = folder / "config.yaml", folder / "overrides.txt"
    text = config.read_text()
    key = "search.proof.gap" if re.search(r"(?m)^  proof:", text) else "search.gap"
    config.write_text(re.sub(r"(?m)^(  +gap: ).*$", lambda found: f"{found.group(1)}{asked!r}", text, count=1))
    overrides.write_text(overrides.read_text() + f"{key}={asked!r}\n")
    return f"gap asked for {asked!r}, reached is {gap!r}"


def limit_moved(folder: Path, rng: np.random.Generator) -> str:
    """Another limit in configuration, overrides and summary."""
    summary = json.loads((folder / "summary.json").read_text())
    if "capex_usd" not in summary["limits"]:
        return ""
    limit = summary["limits"]["capex_usd"]
    other = limit * float(rng.choice([1 + 1e-9, 1.01, 2.0]))
    summary["limits"]["capex_usd"] = other
    (folder / "summary.json").write_text(json.dumps(summary, indent=2))
    config, overrides = folder / "config.yaml", folder / "overrides.txt"
    config.write_text(
        re.sub(r"(?m)^(    capex_usd: ).*$", lambda found: f"{found.group(1)}{other!r}", config.read_text())
    )
    overrides.write_text(re.sub(r"capex_usd=.*", f"capex_usd={other!r}", overrides.read_text()))
    return f"limit of capex_usd from {limit!r} to {other!r}"


CERTIFICATE = tuple(f"certificate/{name}" for name in ("nodes", "points", "cuts", "statements", "designs", "tangents"))
CHANGES: dict[str, Change] = {
    "a number of designs.parquet": cell(("designs",), "number"),
    "a number of another frame": cell(FRAMES[1:], "number"),
    NOISE: cell(CERTIFICATE, "number"),
    "no number in a frame": cell(FRAMES, "nan"),
    "no number in the proof": cell(CERTIFICATE, "nan"),
    "a row of a frame left out": cell(FRAMES, "drop row"),
    "a row of a frame twice": cell(FRAMES, "double row"),
    "two rows of a frame exchanged": cell(FRAMES, "swap"),
    "two rows of the proof exchanged": cell(CERTIFICATE, "swap"),
    "a row of the proof left out": cell(CERTIFICATE, "drop row"),
    "a column of a frame left out": cell(FRAMES, "drop column"),
    "a column of the proof left out": cell(CERTIFICATE, "drop column"),
    "a column renamed": cell((*FRAMES, *CERTIFICATE), "rename column"),
    "a column more": cell((*FRAMES, *CERTIFICATE), "add column"),
    "a column of words": cell((*FRAMES, *CERTIFICATE), "words"),
    "a number of summary.json": json_leaf("summary.json", is_number, lambda v, rng: moved(float(v), rng)),
    "a word of summary.json": json_leaf("summary.json", lambda v: isinstance(v, str), lambda v, rng: f"{v} indeed"),
    "yes or no in summary.json": json_leaf("summary.json", lambda v: isinstance(v, bool), lambda v, rng: not v),
    "another kind in summary.json": json_leaf("summary.json", lambda v: True, other_kind),
    "a number of certificate.json": json_leaf(
        "certificate/certificate.json", is_number, lambda v, rng: moved(float(v), rng)
    ),
    "another kind in certificate.json": json_leaf("certificate/certificate.json", lambda v: True, other_kind),
    "another kind in written.json": json_leaf("written.json", lambda v: True, other_kind),
    "a number of config.yaml": number_of_text("config.yaml"),
    "a number of overrides.txt": number_of_text("overrides.txt"),
    "a number of provenance.json": json_leaf("provenance.json", lambda v: isinstance(v, str), lambda v, rng: v + "1"),
    "a number of report.html": number_of_text("report.html"),
    "an override": line_of_overrides,
    "a file deleted": file_change("delete"),
    "a file renamed": file_change("rename"),
    "a file cut in half": file_change("cut"),
    "a file emptied": file_change("empty"),
    "a bit of a file": file_change("bit"),
    "a bound raised everywhere": bound_raised,
    "a best lowered everywhere": best_lowered,
    "a gap asked for that was not reached": gap_asked,
    "a limit moved everywhere": limit_moved,
}


def sums_anew(folder: Path, mode: str) -> None:
    """Checksums of what is there now, so that they tell nothing."""
    header = folder / "certificate/certificate.json"
    with contextlib.suppress(Exception):
        if mode == EVERY and header.is_file():
            told = json.loads(header.read_text(encoding="utf-8"))
            told["of"] = hashlib.sha256((folder / "config.yaml").read_bytes()).hexdigest()
            for name in told["sums"]:
                frame = pd.read_parquet(folder / f"certificate/{name}.parquet")
                told["counts"][name] = len(frame)
                told["sums"][name] = checksum({str(column): frame[column].to_numpy() for column in frame})
            told["designs"] = len(pd.read_parquet(folder / "designs.parquet"))
            header.write_text(json.dumps(told, indent=1), encoding="utf-8")
    if mode != AS_IS:
        every = (path for path in folder.rglob("*") if path.is_file() and path.name != "written.json")
        sums = {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in every
            if "figures" not in path.parts
        }
        (folder / "written.json").write_text(json.dumps(sums, indent=1), encoding="utf-8")


def worded(parts: Sequence[str]) -> list[str]:
    """Places without the words behind them."""
    return [part.split(" ")[0] for part in parts if part]


def outcome(kind: str, mode: str, what: str, result: str, text: str, open_: Sequence[str]) -> str:
    """What an answer means: accepted, unless it says itself that this is not checked, or the proof is another one."""
    if result != "accepted":
        return result
    file, _, place = what.partition(": ")
    if mode == EVERY and place in ("delete", "rename") and f"{file} is not there" in text:
        return "told as not checked"  # a run without a page is a run without a page, and the answer says so
    place = re.sub(r"\.\d+(?=\.|$)", "", place.split(" from ")[0])
    known = file if file in open_ else f"{Path(file).stem}.{place}"
    if mode != AS_IS and any(known == part or known.startswith(f"{part}.") for part in worded(open_)):
        return "told as not checked"
    if mode == EVERY and (kind == NOISE or "of the proof" in kind or kind == "a number of certificate.json"):
        return "another proof of the same bound"
    return result


def same_numbers(run: Path, folder: Path) -> bool:
    """True if every table of a changed folder reads as before, to the digits that are compared."""
    for path in (path for path in run.rglob("*") if path.is_file() and "figures" not in path.parts):
        other = folder / path.relative_to(run)
        if path.read_bytes() == other.read_bytes():
            continue
        try:
            if path.suffix != ".parquet":
                return False
            first, second = (pq.read_table(one).to_pandas(ignore_metadata=True) for one in (path, other))
            pd.testing.assert_frame_equal(first, second, check_exact=False, rtol=CLOSE, atol=0.0)
        except Exception:
            return False
    return True


def tampered(
    runs: dict[str, Path], count: int, seed: int, scratch: Path, tell: Callable[[int, Tally], None], kinds: str = ""
) -> Tally:
    """So many changed folders, verified; kinds of changes and runs in turn, all else by chance."""
    tally, names, bounds = Tally(), list(runs), dict[str, float]()
    open_: dict[str, list[str]] = {}
    for name, run in runs.items():
        result, text = verified(run)
        if result != "accepted":
            raise SystemExit(f"{name}: the run as it was left is {result}: {text[-600:]}")
        open_[name] = unchecked(text)
    changes = [(kind, change) for kind, change in CHANGES.items() if kinds in kind]
    modes, number, tries = (AS_IS, LISTED, EVERY, EVERY), 0, 0
    while number < count and tries < 20 * count:
        tries += 1
        rng = np.random.default_rng([seed, tries])
        kind, change = changes[tries % len(changes)]
        name, mode = names[int(rng.integers(len(names)))], modes[int(rng.integers(len(modes)))]
        if kind == "another kind in written.json":
            mode = AS_IS
        folder = scratch / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(runs[name], folder, ignore=shutil.ignore_patterns("figures"))
        what = change(folder, rng)
        repaired = re.match(r"certificate/certificate.json: (sums|counts|of|designs)\b", what) and mode == EVERY
        if kind == "a bit of a file" and mode != AS_IS and same_numbers(runs[name], folder):
            continue  # a bit that nobody reads, such as the statistics of a column
        if not what or repaired or ("written.json" in what and mode != AS_IS):
            continue
        sums_anew(folder, mode)
        result, text = verified(folder)
        number += 1
        meaning = outcome(kind, mode, what, result, text, open_[name])
        if meaning == "accepted" and name == "mix" and kind == "a bound raised everywhere":
            if name not in bounds:
                bounds[name] = proven(scratch / "finer", name)
            raised = float(json.loads((folder / "summary.json").read_text())["certificate"]["bound"])
            meaning = HOLDS if raised <= bounds[name] else meaning
        tally.note(kind, mode, meaning, f"{name}: {what}: {text[-300:]}")
        tell(number, tally)
    return tally


def run(arguments: Sequence[str] | None = None) -> int:
    """The command line; exit code 1 where a change was accepted that matters, or ended in a traceback."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--count", type=int, default=200, help="changed folders (200)")
    asked.add_argument("--seed", type=int, default=0, help="of the changes (0)")
    asked.add_argument("--studies", default=",".join(STUDIES), help="of which runs, divided by commas (all)")
    asked.add_argument("--runs", default="", metavar="DIR", help="keep the honest runs there, or take them from there")
    asked.add_argument("--kinds", default="", metavar="WORDS", help="only changes whose name has these words")
    options = asked.parse_args(arguments)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(options.runs) if options.runs else Path(scratch) / "runs"
        names = options.studies.split(",")
        known = {name: next((root / name).iterdir()) for name in names if (root / name).is_dir()}
        known |= make_runs(root, [name for name in names if name not in known])
        print(f"{len(known)} runs there, {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)

        def tell(number: int, tally: Tally) -> None:
            if number % 10 == 0 or tally.wrong:
                seconds, wrong = time.perf_counter() - began, len(tally.wrong)
                print(f"{number} of {options.count}, {wrong} wrong, {seconds:.0f} s", file=sys.stderr, flush=True)

        with once():
            tally = tampered(known, options.count, options.seed, Path(scratch), tell, options.kinds)
    print("\n".join([*tally.lines(), *tally.wrong]))
    words = ("refused", "accepted", "traceback", "told as not checked", "another proof of the same bound", HOLDS)
    print("; ".join(f"{tally.count(word)} {word}" for word in words))
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(run())
