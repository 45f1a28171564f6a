"""Write `docs/errors.md` and its figure from `reports/validation/strata.csv`: `python docs/make_errors.py`."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parent
STRATA = DOCS.parent / "reports" / "validation" / "strata.csv"
Stratum = Mapping[str, str]
Key = tuple[str, str, str]


class Line(NamedTuple):
    """One line of the page.

    fitted: suite, stratum and quantity whose constants were fitted on rows like these; None where nothing was.
    held_out: the same of rows that were left out of the fit; None where the tables have no such stratum.
    """

    topic: str
    what: str
    fitted: Key | None
    held_out: Key | None
    without: str
    source: str


def _pair(suite: str, stratum: str, quantity: str, left_out: str) -> tuple[Key, Key]:
    return (suite, stratum, quantity), (suite, f"{stratum}, {left_out}", quantity)


OPERATORS = "operators [aiconfigurator]"
SERVED = "served models [aiconfigurator]"
GPU = "GPU left out"
LINES = (
    Line("Kernels", "GEMM, bf16", *_pair("kernels", "gemm bf16", "latency", GPU), "the GPU", OPERATORS),
    Line("Kernels", "GEMM, fp8", *_pair("kernels", "gemm fp8", "latency", GPU), "the GPU", OPERATORS),
    Line("Kernels", "attention, prefill", *_pair("kernels", "attention prefill", "latency", GPU), "the GPU", OPERATORS),
    Line("Kernels", "attention, decode", *_pair("kernels", "attention decode", "latency", GPU), "the GPU", OPERATORS),
    Line("Kernels", "latent attention, decode", *_pair("kernels", "MLA decode", "latency", GPU), "the GPU", OPERATORS),
    Line("Kernels", "mixture-of-experts layer", *_pair("kernels", "MoE", "latency", GPU), "the GPU", OPERATORS),
    Line(
        "Collectives", "scale-up network, 1 MiB and more",
        *_pair("collectives", "collectives from 1 MiB", "latency", GPU), "the GPU", OPERATORS,
    ),
    Line(
        "Collectives", "scale-up network, below 1 MiB",
        *_pair("collectives", "collectives below 1 MiB", "latency", GPU), "the GPU", OPERATORS,
    ),
    Line(
        "Collectives", "across nodes", ("across nodes", "across nodes", "latency"),
        ("across nodes", "published logs", "latency"), "the source", "nccl-tests logs [nccl_cluster]",
    ),
    Line(
        "Collectives", "expert exchange, scale-up network",
        *_pair("expert exchange", "inside nodes", "latency", GPU), "the GPU", OPERATORS,
    ),
    Line(
        "Training", "step, MosaicML FSDP", ("training", "training MosaicML, framework fitted", "step_time"),
        ("training", "training MosaicML, GPU left out", "step_time"), "GPU and framework",
        "LLM Foundry [mosaicml_llm_foundry]",
    ),
    Line(
        "Training", "step, NVIDIA NeMo", ("training", "training NeMo, framework fitted", "step_time"),
        ("training", "training NeMo, GPU left out", "step_time"), "GPU and framework",
        "Megatron-Bridge [nvidia_megatron_bridge]",
    ),
    Line(
        "Training", "step on one node, vTrain", ("training", "training vTrain, framework fitted", "step_time"),
        ("training", "training vTrain, GPU left out", "step_time"), "GPU and framework", "vTrain [bang2024vtrain]",
    ),
    Line(
        "Training", "step, MLPerf v5.1", None,
        ("MLPerf training", "MLPerf training, framework of NeMo", "step_time"), "the source",
        "MLPerf logs [mlcommons_rules]",
    ),
    Line(
        "Serving", "time per output token",
        *_pair("closed loop", "every concurrency", "tpot", "GPU and model left out"), "GPU and model", SERVED,
    ),
    Line(
        "Serving", "first token, 1 to 4 clients",
        *_pair("closed loop", "concurrency to 4", "ttft", "GPU and model left out"), "GPU and model", SERVED,
    ),
    Line(
        "Serving", "first token, more than 16 clients",
        *_pair("closed loop", "concurrency above 16", "ttft", "GPU and model left out"), "GPU and model", SERVED,
    ),
    Line(
        "Serving", "disaggregated, time per output token", None,
        ("disaggregated", "every concurrency", "tpot"), "disaggregated runs", SERVED,
    ),
    Line(
        "Serving", "the same, first token, over 16 clients", None,
        ("disaggregated", "concurrency above 16", "ttft"), "disaggregated runs", SERVED,
    ),
    Line(
        "Energy", "joules per token",
        *_pair("power", "steady decoding", "joules_per_token", "GPU and model left out"), "GPU and model",
        "ML.ENERGY leaderboard [mlenergy2025]",
    ),
)  # fmt: skip
HEAD = """<!-- Written by docs/make_errors.py. -->
# Accuracy

How far predictions are from measurements that nobody on this project made. An error is |predicted / measured - 1|;
the table shows medians over all rows.

- **Fitted**: constants were fitted on rows like these.
- **Held out**: the rows were left out of the fit, together with all others of the GPU, model, framework or source that
  the column `without` names. This is what to expect of something that has not been measured.
- **90 % interval**: nine of ten measurements lie within this factor above or below the prediction, by cross-validation,
  where the rows are held out. `codesign evaluate` prints such intervals beside its results.

![Median error of each row: fitted, and held out](files/errors.svg)
"""
TAIL = """
A training step whose framework is not named may take twice as long as predicted, because frameworks differ that
much; name one with `framework=` where you know it. First tokens under load are the least certain numbers: one queued
prompt more or less changes them by a factor, and published runs of the same condition differ among themselves.

## Where the numbers come from

`codesign validate DIR` scores a folder of measurements; [tables of measurements](measurements.md) says which columns
it reads, and [measurements of your own](how-to/measurements.md) how to add yours. The complete tables, by device and
source, with biases, ranks, interval coverage and what was set aside, are in
[errors by stratum](../reports/validation/README.md). [Public runs](../reports/validation/public_runs/runs.md) that
nothing was fitted on are shown one by one, misses included. Tables of errors:
"""
TABLES = (
    ("kernels", "kernels"), ("collectives", "collectives"), ("across_nodes", "across nodes"),
    ("expert_exchange", "expert exchange"), ("unfitted", "operators that nothing was fitted on"),
    ("training", "training"), ("mlperf_training", "MLPerf training"), ("inference", "static batches"),
    ("maximum_throughput", "maximum throughput"), ("closed_loop", "serving at a concurrency"),
    ("open_loop", "serving at a rate, with peers"), ("disaggregated", "disaggregated serving"), ("power", "power"),
)  # fmt: skip


def read(path: Path = STRATA) -> dict[Key, Stratum]:
    """Suite, stratum and quantity -> numbers."""
    with path.open(encoding="utf-8", newline="") as file:
        return {(row["suite"], row["stratum"], row["quantity"]): row for row in csv.DictReader(file)}


def _percent(row: Stratum | None, name: str = "median") -> str:
    return "" if row is None else f"{100 * float(row[name]):.1f} %"


def _rows(strata: Mapping[Key, Stratum]) -> Iterator[tuple[Line, Stratum | None, Stratum | None]]:
    """Lines with what the tables say of them; a stratum that is not there is an error."""
    for line in LINES:
        yield line, strata[line.fitted] if line.fitted else None, strata[line.held_out] if line.held_out else None


def page_of(strata: Mapping[Key, Stratum]) -> str:
    """The page, as Markdown."""
    lines = [
        HEAD,
        "| | quantity | fitted | held out | without | 90 % interval | rows | source |",
        "|---|---|---|---|---|---|---|---|",
    ]
    topic = ""
    for line, fitted, held_out in _rows(strata):
        shown = held_out or fitted
        assert shown is not None
        width = f"x/{float(shown['width']):.2f}" if shown["width"] else ""
        cells = [
            "" if line.topic == topic else f"**{line.topic}**", line.what, _percent(fitted), _percent(held_out),
            line.without, width, f"{int(float((fitted or shown)['n'])):,}", line.source,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
        topic = line.topic
    lines += [TAIL, *(f"- [{words}](../reports/validation/{name}.md)" for name, words in TABLES)]
    return "\n".join(lines) + "\n"


LEFT, RIGHT, TOP, STEP, WIDTH = 310, 30, 46, 22, 780
TICKS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
FITTED, HELD_OUT = "#3949ab", "#ef6c00"


def _across(error: float) -> float:
    low, high = math.log(TICKS[0]), math.log(TICKS[-1])
    share = (math.log(max(error, TICKS[0])) - low) / (high - low)
    return LEFT + min(share, 1.0) * (WIDTH - LEFT - RIGHT)


def _marks(y: float, fitted: Stratum | None, held_out: Stratum | None) -> Iterator[str]:
    at = [_across(float(row["median"])) for row in (fitted, held_out) if row]
    if len(at) == 2:
        yield f'<line x1="{at[0]:.1f}" x2="{at[1]:.1f}" y1="{y}" y2="{y}" stroke="#9e9e9e" stroke-width="2"/>'
    for row, colour in ((fitted, FITTED), (held_out, HELD_OUT)):
        if row:
            yield f'<circle cx="{_across(float(row["median"])):.1f}" cy="{y}" r="5" fill="{colour}"/>'


def figure_of(strata: Mapping[Key, Stratum]) -> str:
    """Medians on a logarithmic axis, as SVG."""
    topics = len({line.topic for line in LINES})
    bottom = TOP + STEP * (len(LINES) + topics)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 30}" font-family="sans-serif" '
        'font-size="13">',
        "<title>Median error of each row: fitted, and held out</title>",
        f'<rect width="{WIDTH}" height="{bottom + 30}" fill="white"/>',
        f'<circle cx="{LEFT}" cy="18" r="5" fill="{FITTED}"/><text x="{LEFT + 10}" y="22">fitted</text>',
        f'<circle cx="{LEFT + 80}" cy="18" r="5" fill="{HELD_OUT}"/><text x="{LEFT + 90}" y="22">held out</text>',
        f'<text x="{WIDTH - RIGHT}" y="22" text-anchor="end" fill="#616161">median error, logarithmic</text>',
    ]
    for tick in TICKS:
        x = f"{_across(tick):.1f}"
        lines.append(f'<line x1="{x}" x2="{x}" y1="{TOP - 10}" y2="{bottom}" stroke="#e0e0e0"/>')
        lines.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{100 * tick:g} %</text>')
    y, topic = TOP, ""
    for line, fitted, held_out in _rows(strata):
        if line.topic != topic:
            lines.append(f'<text x="10" y="{y + 4}" font-weight="bold">{line.topic}</text>')
            y, topic = y + STEP, line.topic
        lines.append(f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{line.what}</text>')
        lines += _marks(y, fitted, held_out)
        y += STEP
    return "\n".join([*lines, "</svg>"]) + "\n"


def files_of(strata: Mapping[Key, Stratum]) -> dict[Path, str]:
    """File -> what it should hold."""
    return {DOCS / "errors.md": page_of(strata), DOCS / "files" / "errors.svg": figure_of(strata)}


def main(paths: Sequence[Path] = (STRATA,)) -> None:
    """Write both files."""
    for path in paths:
        for file, text in files_of(read(path)).items():
            file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
