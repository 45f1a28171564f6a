"""Tables of errors for reading: by class, device, source and regime, what is fitted on what, misses included."""

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..calibration.constants import publish
from .compared_runs import RUN
from .scores import Row

__all__ = ["tables_of", "write_tables"]

HEAD = """# Errors by stratum

How far predictions are from measurements, as `codesign validate DIR --page FOLDER` computes it. The project's own page
is of the tables that constants were fitted on; what matters most of it is in `docs/errors.md`.

An error is |predicted / measured - 1|; bias is its signed median; rank
is Spearman's correlation inside a device and model, averaged; `inside` is the share of rows within the 90 % interval,
whose half width is a factor, and `left out` the share that intervals held in cross-validation: of rows, devices or
sources that they were not fitted on, and of kernels neither were the learned factors. What a table was fitted on
predicts its own rows better than others: strata that leave a device out, read another source's constants or fit nothing
say what to expect of a machine that nobody measured.
"""
CHOSEN = """Each width is the smallest that covers nine in ten of the rows left out, one number a stratum; where a part
has no such width, that of its stratum counts. The shares show that such a width exists; they do not promise the same
coverage on a table that nobody has seen. `inside` of single devices and sources is not chosen."""
FEWEST = 5  # rows of a device that are worth a line
FEWEST_COVERED = 20  # rows of a stratum whose interval is judged
NEAR = 0.25  # error of a single run that is told as near


class Bar(NamedTuple):
    """Bar that a stratum is held against: the median error that it should not exceed."""

    suite: str
    stratum: str
    quantity: str
    most: float


BARS = (
    Bar("kernels", "gemm bf16", "latency", 0.045), Bar("kernels", "gemm (fp8|fp8_block|fp4)", "latency", 0.05),
    Bar("kernels", "attention prefill", "latency", 0.04), Bar("kernels", "attention decode", "latency", 0.05),
    Bar("kernels", "MLA prefill", "latency", 0.035), Bar("kernels", "MLA decode", "latency", 0.06),
    Bar("kernels", "MoE", "latency", 0.08), Bar("kernels", "elementwise", "latency", 0.12),
    Bar("collectives", "collectives from 1 MiB", "latency", 0.045),
    Bar("collectives", "collectives below 1 MiB", "latency", 0.055),
    Bar("unfitted", "layer operators, elementwise.*", "latency", 0.12),
    Bar("expert exchange", "(inside|across) nodes(, GPU left out)?", "latency", 0.2),
    Bar("across nodes", "across nodes", "latency", 0.12), Bar("across nodes", "published logs", "latency", 0.2),
    Bar("training", ".*framework fitted", "step_time", 0.05), Bar("training", ".*framework of .*", "step_time", 0.12),
    Bar("MLPerf training", ".*framework of .*", "step_time", 0.12),
    Bar("closed loop", "every concurrency", "tpot", 0.11), Bar("closed loop", "concurrency to 4", "ttft", 0.15),
    Bar("closed loop", "concurrency to 16", "ttft", 0.25), Bar("open loop", "this model", "itl", 0.06),
    Bar("open loop", "this model", "ttft", 0.08), Bar("open loop", "this model", "ttft p99", 0.25),
    Bar("open loop", "this model", "e2e", 0.05), Bar("power", "steady decoding.*", "joules_per_token", 0.15),
)  # fmt: skip
FITTED: tuple[tuple[str, str, str], ...] = (  # suite and stratum as expressions -> what was fitted; the first counts
    (".*", "peer .*", "a peer's prediction"),
    ("closed loop", ".*left out", "eight constants an engine, on its rows of others"),
    (".*", ".*GPU left out.*", "relatives: the device is left out"),
    ("training", ".*framework fitted", "the framework, on this table"),
    (".*training", ".*framework of .*", "the framework, on another source"),
    (".*", ".*(not named|as all-to-all)", "nothing on these rows"),
    ("kernels", ".*physics alone", "physics, on these rows"),
    ("kernels", ".*", "physics and learned factors, on these rows"),
    ("collectives", ".*", "curves, on these rows"),
    ("expert exchange", ".*", "eight constants a library, phase and format, on these rows"),
    ("closed loop", ".*", "eight constants an engine, on these rows"),
    ("open loop", ".*", "one constant, on these rows"),
    ("power", ".*left out", "four constants of steps, energies of boards, on rows of others"),
    ("power", "kernels", "energies of boards that serve, nothing on these rows"),
    ("power", ".*", "four constants of steps, energies of boards, on these rows"),
    ("across nodes", "inside one node", "curves, on another source"),
    ("across nodes", "across nodes", "how both levels go together, three constants, on half of these rows"),
    ("measured runs", ".*", "nothing on these rows"),
    ("disaggregated", ".*", "engines, on rows of one pool; two choices and a constant an engine on these rows"),
    (".*", ".*", "nothing on whole jobs: kernels and collectives alone"),
)

REASONS: tuple[tuple[str, str, str], ...] = (
    (
        "maximum throughput",
        "MLPerf offline",
        "DeepSeek-R1 is 50 to 100 % too fast. Its answers have 3,886 tokens in the mean [mlcommons_rules] and 20,000 at"
        " most [mlperf_reasoning]; the row is priced as an endless stream of answers of the mean length. In a run that"
        " ends the longest answers are decoded when most of the batch is empty, and long answers hold more of the cache"
        " than their share; their lengths are not published, so that how much of it this explains is not determined.",
    ),
)
"""Suite, stratum, and why its worst rows are off, as far as it is known."""


def fitted_on(row: Row) -> str:
    """Data that constants were fitted on, in words."""
    return next(
        words
        for suite, stratum, words in FITTED
        if re.fullmatch(suite, row["suite"]) and re.fullmatch(stratum, row["stratum"])
    )


def bar_of(row: Row) -> float | None:
    """Median error that a stratum should not exceed; None where nobody said."""
    for bar in BARS:
        if (bar.suite, bar.quantity) == (row["suite"], row["quantity"]) and re.fullmatch(bar.stratum, row["stratum"]):
            return bar.most
    return None


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join('---' for _ in head)}|"
    for line in lines:
        yield f"| {' | '.join(line)} |"


def _numbers(row: Row) -> list[str]:
    coverage, width, rank = row["coverage"], row["width"], row["rank"]
    return [
        str(row["n"]), _share(row["median"]), _share(row["mean"]), _share(row["p90"]), _share(row["bias"]),
        "" if rank is None else f"{rank:.2f}", _share(coverage), _share(row["left_out"]),
        "" if width is None else f"x/{width:.2f}",
    ]  # fmt: skip


NUMBERS = ("n", "median", "mean", "p90", "bias", "rank", "coverage", "left_out", "width")
COLUMNS = ("rows", "median %", "mean %", "p90 %", "bias %", "rank", "inside %", "left out %", "half width")


def _missed(strata: Sequence[Row]) -> Iterator[str]:
    """List what does not keep its bar, worst first; and intervals that hold too few or too many."""
    late = [(row["median"] / bar, row, bar) for row in strata if (bar := bar_of(row)) and row["median"] > bar]
    held = sum(bar_of(row) is not None for row in strata) - len(late)
    yield f"Of {held + len(late)} strata with a bar {held} keep it." + (" These do not:\n" if late else "")
    if late:
        lines = [
            [row["suite"], row["stratum"], row["quantity"], _share(row["median"]), _share(bar)]
            for _, row, bar in sorted(late, key=lambda one: -one[0])
        ]
        yield from _table(("suite", "stratum", "quantity", "median %", "bar %"), lines)
    judged = [row for row in strata if row["left_out"] is not None and row["n"] >= FEWEST_COVERED]
    off = [row for row in judged if not 0.85 <= row["left_out"] <= 0.95]
    good, ending = len(judged) - len(off), "not in these:\n" if off else "all of them."
    yield f"\nThe 90 % intervals cover 85 to 95 % of the rows left out in {good} of {len(judged)} strata of at least"
    yield f"{FEWEST_COVERED} rows, {ending}"
    if off:
        yield from _table(
            ("suite", "stratum", "quantity", "rows", "inside %", "left out %", "half width"),
            [[row["suite"], row["stratum"], row["quantity"], str(row["n"]), *_numbers(row)[-3:]] for row in off],
        )
    yield f"\n{CHOSEN}"


def _by(name: Callable[[Row], str], rows: Sequence[Row]) -> dict[str, list[Row]]:
    result: dict[str, list[Row]] = {}
    for row in rows:
        result.setdefault(name(row), []).append(row)
    return result


def file_of(suite: str) -> str:
    """The file of a suite's tables."""
    return f"{re.sub('[^a-z0-9]+', '_', suite.lower())}.md"


def _suite_page(suite: str, strata: Sequence[Row], groups: Sequence[Row]) -> str:
    lines = [f"# {suite[0].upper()}{suite[1:]}", "", "Columns are explained in [errors by stratum](README.md).", ""]
    lines += _table(
        ("stratum", "quantity", "fitted", *COLUMNS),
        [[row["stratum"], row["quantity"], fitted_on(row), *_numbers(row)] for row in strata],
    )
    why_far = [f"{stratum}: {why}" for name, stratum, why in REASONS if name == suite]
    lines += (
        ["", "What is known of the rows that are far off:", "", *(f"- {text}" for text in why_far)] if why_far else []
    )
    if groups:
        lines += ["", f"By device and source, of at least {FEWEST} rows:", ""]
        lines += _table(
            ("device, source", "stratum", "quantity", *COLUMNS),
            [[row["group"], row["stratum"], row["quantity"], *_numbers(row)] for row in groups],
        )
    return "\n".join(lines) + "\n"


def _as_csv(strata: Sequence[Row]) -> str:
    """The strata as data: numbers to six digits, nothing where there is none."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("suite", "stratum", "quantity", "fitted", *NUMBERS))
    for row in strata:
        values = ("" if row[name] is None else f"{row[name]:.6g}" for name in NUMBERS)
        table.writerow((row["suite"], row["stratum"], row["quantity"], fitted_on(row), *values))
    return text.getvalue()


def _runs_page(runs: Sequence[Row]) -> str:
    """Each run beside its prediction: the table of those that lie outside of their intervals, misses included."""
    lines = ["# Each measured run", ""]
    bounded = [row for row in runs if row["low"] is not None]
    inside = sum(row["low"] <= row["measured"] <= row["high"] for row in bounded)
    near = sum(abs(row["error"]) <= NEAR for row in runs if row["error"] is not None)
    lines += [
        f"Of {len(runs)} measured values {near} are predicted within {NEAR:.0%}; of {len(bounded)} with an interval of"
        f" 90 % {inside} lie inside it. Numbers are in SI units, as the commands below print them.", "",
    ]  # fmt: skip
    body: list[list[str]] = []
    for row in runs:
        low, high = row["low"], row["high"]
        ends = "" if low is None else f"{low:.4g} to {high:.4g}"
        held = "" if low is None else "yes" if low <= row["measured"] <= high else "no"
        error = "" if row["error"] is None else f"{100 * row['error']:+.1f}"
        body.append([row["group"], row["carried"], row["quantity"], f"{row['predicted']:.4g}", ends,
                     f"{row['measured']:.4g}", error, held])  # fmt: skip
    head = ("run", "of it", "metric", "predicted", "90 % interval", "measured", "error %", "inside")
    lines += _table(head, body)
    commands = dict.fromkeys(row["command"] for row in runs)
    return "\n".join([*lines, "", "```", *commands, "```"]) + "\n"


def tables_of(rows: Sequence[Row]) -> dict[str, str]:
    """File name -> content: an overview, a page a suite, all strata as CSV, and few measured runs one by one."""
    scored = [row for row in rows if row["suite"] not in ("note", RUN)]
    runs = [row for row in rows if row["suite"] == RUN]
    strata = [row for row in scored if row["group"] == "all"]
    suites = _by(lambda row: row["suite"], strata)
    pages = dict[str, str]()
    for suite, mine in suites.items():
        groups = [row for row in scored if row["suite"] == suite and row["group"] != "all" and row["n"] >= FEWEST]
        groups = [row for row in groups if not row["stratum"].startswith("peer ")]
        pages[file_of(suite)] = _suite_page(suite, mine, groups)
    if runs:
        pages["runs.md"] = _runs_page(runs)
    lines = [HEAD, "## Tables", ""]
    lines += [f"- [{suite[0].upper()}{suite[1:]}]({file_of(suite)})" for suite in suites]
    lines += ["- [each measured run](runs.md)"] if runs else []
    lines += ["- [all strata as CSV](strata.csv)", ""]
    if any(bar_of(row) or row["left_out"] is not None for row in strata):
        lines += ["## Bars and intervals", "", *_missed(strata), ""]
    lines += ["## What was set aside", ""]
    lines += [f"- {row['quantity']}" for row in rows if row["suite"] == "note"]
    return {"README.md": "\n".join(lines) + "\n", **pages, "strata.csv": _as_csv(strata)}


def write_tables(rows: Sequence[Row], folder: str | Path) -> list[Path]:
    """Write the tables of these rows into a folder."""
    return publish({Path(folder) / name: text for name, text in tables_of(rows).items()})
