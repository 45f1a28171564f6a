"""`codesign evaluate`: the price of one design, with its full breakdown."""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from jaxtyping import Array
from rich.console import Console

from ..config import check_memory
from ..config.checks import check_hopeful, check_outcome, check_plan
from ..config.consistency import check_boxes, check_load
from ..config.least_devices import sized
from ..config.legal_start import legal_start, with_waiting_clients
from ..config.parts_built import format_lines
from ..config.plausibility import unusual
from ..config.study import documented_scenario
from ..core.fields import as_leaf, get_path, replace
from ..core.interval_text import between_text, remarks_text
from ..core.jax_typed import asarray
from ..core.json_yaml import dumps
from ..core.smooth import used_share
from ..core.units import GB, engineering
from ..jaxprs.evaluator import interpreted
from ..model.hardware.memory import TieredMemory
from ..model.hardware.memory_pool import SharedPool
from ..model.metrics import cache_room, cache_tokens
from ..model.metrics.cache_placement import has_prefix_cache, hits_of
from ..model.scenario import Scenario
from ..model.workloads import AbstractServing, VisionEncoder
from ..model.workloads.base import FamilyVocabulary
from ..model.workloads.continuous import AbstractContinuousServing
from ..report.labels import money
from ..search.results import busy_links, numbers_in, numbers_of, ops, priced
from ..study.objective import feasible, share_text
from ..uncertainty import Interval, uncertain, with_room
from .memory_fit import chance_text
from .remarks import (
    Explanation,
    naming_unusual,
    of_metric,
    print_explanations,
    say_default,
    say_devices,
    say_idle,
    say_trace,
    warn,
)
from .setup import prepare_jax
from .terminal import console, counts_text, job_text, plain_table

__all__ = ["PrefixCacheValue", "evaluate_design", "prefix_worth", "sections"]


# Tables of one design on the terminal: headline, time, memory, money, the longest operations.


PERCENTILES = {
    f"{name}_{share}_s": f"{label}, {share}"
    for name, label in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "whole request"))
    for share in ("p50", "p90", "p99")
}  # fmt: skip
"""Latency and goodput that requests see under an arrival rate."""


def _group(numbers: dict[str, float], prefix: str) -> dict[str, float]:
    return {name[len(prefix) :]: value for name, value in numbers.items() if name.startswith(prefix)}


LIFE: dict[str, tuple[str, Callable[[float], str]]] = {
    "goodput": ("goodput", lambda value: f"{value:.2%}"),
    "availability": ("availability", lambda value: f"{value:.2%}"),
    "checkpoint_interval_s": ("work between checkpoints", lambda value: engineering(value, "s")),
    "time_to_train_s": ("time of the run", lambda value: f"{value / 86400:.3g} days"),
    "usd_to_train": ("cost of the run", lambda value: f"{engineering(value)} USD"),
    "loss": ("loss", lambda value: f"{value:.4g} nats a token"),
    "loss_beyond": ("beyond the law's range", lambda value: f"{value:.3g} times" if value > 1 else "no"),
    "carbon_g_per_million_tokens": ("carbon", lambda value: f"{engineering(value)}g per million tokens"),
    "carbon_to_train_kg": ("carbon of the run", lambda value: f"{engineering(1e3 * value)}g"),
}
"""Metrics of a whole run -> what they are called, and how they are written."""


class PrintedTable(NamedTuple):
    """One table: its title, heads of its columns, rows of text, and what rows and columns mean.

    labels: (label of a row, metric that it shows), one for each row that shows one. columns: (head, meaning).
    """

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]
    labels: list[tuple[str, str]]
    columns: tuple[tuple[str, str], ...] = ()

    def explained(self, words: FamilyVocabulary) -> list[Explanation]:
        """A line for each column that needs one, and each row."""
        lines = [Explanation(head, text) for head, text in self.columns if head in self.heads]
        return lines + [of_metric(label, name, words) for label, name in self.labels]


def show_evaluation(
    out: Console, title: str, tables: Sequence[PrintedTable], words: FamilyVocabulary, *, explain: bool
) -> None:
    """Print the tables of one design, each with what its columns and rows mean where that is asked for."""
    out.print(f"[bold]{title}[/]")
    for one in tables:
        out.print(plain_table(one.title, one.rows, *one.heads))
        if explain:
            print_explanations(out, one.explained(words))


def sections(
    numbers: dict[str, float],
    uncertain: Mapping[str, Interval],
    ops: pd.DataFrame,
    capacity: dict[str, float],
    top: int,
    item: str,
) -> tuple[PrintedTable, ...]:
    """Headline, time, memory, money and power, and the operations that take longest; with intervals where known."""
    money = _money(numbers)
    return _headline(numbers, uncertain, item), _time(numbers), _memory(numbers, capacity), money, _ops(ops, top)


class HeadlineRow(NamedTuple):
    """A row of the headline: the metric that it shows, its label, value and interval."""

    name: str
    label: str
    value: str
    interval: str = ""


def _headline(numbers: dict[str, float], uncertain: Mapping[str, Interval], what: str) -> PrintedTable:
    def of(name: str, label: str, shown: str, text: Callable[[float], str]) -> HeadlineRow:
        return HeadlineRow(name, label, shown, interval_text(uncertain, name, text))

    def seconds(name: str, label: str) -> HeadlineRow:
        return of(name, label, engineering(numbers[name], "s"), lambda value: engineering(value, "s"))

    serving = "tpot_s" in numbers
    paid = f"output {what}" if serving else what
    power = f"{engineering(numbers['power_w'], 'W')} / {engineering(numbers['provisioned_power_w'], 'W')}"
    cost = f"{numbers['usd_per_million_tokens']:.4g} USD per million {paid}s"
    times = {"time_s": "batch time" if serving else "step time", "ttft_s": "time to first token",
             "tpot_s": "time per output token", **PERCENTILES}  # fmt: skip
    rows = [
        *(seconds(name, label) for name, label in times.items() if name in numbers),
        of("tokens_per_s", "throughput", f"{numbers['tokens_per_s']:,.0f} {what}s/s", lambda value: f"{value:,.0f}"),
        of("mfu", "MFU", f"{numbers['mfu']:.1%}", lambda value: f"{value:.1%}"),
        of("joules_per_token", "energy", f"{numbers['joules_per_token']:.3g} J/{what}", lambda value: f"{value:.3g}"),
        of("power_w", "power, mean / provisioned", power, lambda value: engineering(value, "W")),
        HeadlineRow("capex_usd", "capex", f"{engineering(numbers['capex_usd'])} USD"),
        of("usd_per_million_tokens", "cost", cost, lambda value: f"{value:.4g}"),
        *(HeadlineRow("count", *text.split(": ")) for text in counts_text(numbers)),
        *(HeadlineRow(key, name, text(numbers[key])) for key, (name, text) in LIFE.items() if key in numbers),
    ]
    if "loss_low" in numbers:
        ends = f"[{numbers['loss_low']:.3f}, {numbers['loss_high']:.3f}]"
        rows = [row._replace(interval=ends) if row.name == "loss" else row for row in rows]
    cells = [(row.label, row.value, row.interval) if uncertain else (row.label, row.value) for row in rows]
    heads = ("metric", "value", *(["90 % interval"] if uncertain else []))
    labels = [(row.label, row.name) for row in rows]
    labels.insert([row.name for row in rows].index("power_w") + 1, ("provisioned", "provisioned_power_w"))
    interval = "where nine in ten measurements would lie, by the errors of cross-validation"
    return PrintedTable("What it does and costs", heads, cells, labels, (("90 % interval", interval),))


def interval_text(uncertain: Mapping[str, Interval], name: str, text: Callable[[float], str]) -> str:
    """An interval in brackets; nothing where there is none."""
    return between_text(*uncertain[name], text, "\\[{}, {}]") if name in uncertain else ""


def _time(numbers: dict[str, float]) -> PrintedTable:
    total = numbers["time_s"]
    parts = sorted(_group(numbers, "breakdown_s.").items(), key=lambda part: -part[1])
    parts = [(name, seconds) for name, seconds in parts if seconds > 0]
    rows = [(name, engineering(seconds, "s"), f"{seconds / total:.1%}") for name, seconds in parts]
    labels = [(name, f"breakdown_s.{name}") for name, _ in parts]
    columns = (("share", "of the time of a step or batch"),)
    return PrintedTable("Where the time goes", ("part", "time", "share"), rows, labels, columns)


def _memory(numbers: dict[str, float], capacity: dict[str, float]) -> PrintedTable:
    rows, labels = list[tuple[str, ...]](), list[tuple[str, str]]()

    def add(label: str, nbytes: str, share: str, name: str) -> None:
        rows.append((label, nbytes, share))
        labels.append((label.removeprefix("[bold]"), name))

    used = _group(numbers, "memory_bytes.")
    for tier, size in capacity.items():
        for name, nbytes in used.items():
            if name.startswith(f"{tier}/") and nbytes > 0:
                label = f"{tier}: {name.split('/')[1]}"
                add(label, f"{nbytes / GB:.2f} GB", _used(nbytes, size), f"memory_bytes.{name}")
        total = sum(nbytes for name, nbytes in used.items() if name.startswith(f"{tier}/"))
        label = f"[bold]{tier}: all of {max(size, 0.0) / GB:.0f} GB"
        add(label, f"{total / GB:.2f} GB", _used(total, size), f"usage.{tier}")
    networks = {name: nbytes for name, nbytes in used.items() if name.startswith("ffn/") and nbytes > 0}
    for name, nbytes in networks.items():
        share = numbers["usage.ffn.hbm"] * nbytes / sum(networks.values())
        label = f"hbm of the FFN pool: {name.split('/')[1]}"
        add(label, f"{nbytes / GB:.2f} GB", f"{share:.1%}", f"memory_bytes.{name}")
    if networks:
        total = sum(networks.values())
        size = total / numbers["usage.ffn.hbm"]
        add(f"[bold]hbm of the FFN pool: all of {size / GB:.0f} GB", f"{total / GB:.2f} GB", _used(total, size),
            "usage.ffn.hbm")  # fmt: skip
    for name, share in _group(numbers, "usage.").items():
        tier, _, part = name.partition(".")
        if tier in capacity and part and not part.startswith("placed."):
            add(f"{tier}, share used: {part}", "", _marked(share), f"usage.{name}")
    columns = (("share", "of what is usable of that tier; above 100 % the design does not fit"),)
    return PrintedTable("What lies in memory, per device", ("class", "bytes", "share"), rows, labels, columns)


def _used(nbytes: float, size: float) -> str:
    """Share of a tier that is used."""
    return _marked(float(used_share(nbytes, size)))


def _marked(share: float) -> str:
    """A used share, red where it is too much."""
    return f"{'' if feasible(share - 1) else '[red]'}{share_text(share, 1)}"


def _money(numbers: dict[str, float]) -> PrintedTable:
    capex, power = _group(numbers, "capex."), _group(numbers, "power.")
    rows = [
        (
            part,
            engineering(capex[part]) if part in capex else "",
            engineering(power[part], "W") if part in power else "",
        )
        for part in {**capex, **power}
    ]
    labels = [(part, f"capex.{part}" if part in capex else f"power.{part}") for part, *_ in rows]
    columns = (("power", "provisioned: what must be there when every part draws its most"),)
    title = "Capex and provisioned power, whole cluster, before the facility"
    return PrintedTable(title, ("part", "USD", "power"), rows, labels, columns)


OPERATION_COLUMNS = (
    ("operation", "phase of the step, and what is computed or sent in it"),
    ("kind", "kernel with its number format and what bounds it; or collective and the mesh axis it runs along"),
    ("times", "how often it runs on a device, per micro-batch or per step"),
    ("once", "time of one launch or call"),
    ("in all", "time of all of them together, before anything is hidden behind something else"),
)


def _ops(ops: pd.DataFrame, top: int) -> PrintedTable:
    rows: list[tuple[str, ...]] = []
    for _, row in ops.sort_values("total_s", ascending=False).head(top).iterrows():
        if row["kind"] == "compute":
            peak = row["achieved_flops_per_s"] / row["peak_flops_per_s"]
            memory = row["nbytes"] / row["time_s"] / row["bandwidth_bytes_per_s"]
            busy = f"{peak:.0%} of peak" if peak >= memory else f"{memory:.0%} of the memory's rate"
            what = f"{row['kernel']} {row['number_format']}, {busy}"
        else:
            what = f"{row.get('operation', '')} {row.get('axis', '')}" if row["kind"] == "communication" else "transfer"
        rows.append(
            (f"{row['phase']}: {row['name']}", what, f"{row['count']:g}", engineering(row["time_s"], "s"),
             engineering(row["total_s"], "s"))
        )  # fmt: skip
    title = f"The {top} longest operations, per micro-batch or (gradients, parameters, optimizer) per step"
    return PrintedTable(title, tuple(head for head, _ in OPERATION_COLUMNS), rows, [], OPERATION_COLUMNS)


def room_text(scenario: Scenario) -> str:
    """One line on the room for keys and values, as engines print when they start; empty where nothing is served so."""
    work = scenario.workload
    if not isinstance(work, AbstractContinuousServing):
        return ""
    free, tokens = (float(one) for one in _cache(scenario))
    if free <= 0 or tokens <= 0:
        return ""
    whose = "attention group" if float(scenario.plan.attention_dp) > 1 else "engine"
    return f"room for KV cache: {free / 2**30:.4g} GiB a device, {tokens:,.0f} tokens an {whose}"


@functools.partial(interpreted, always=True)
def _cache(scenario: Scenario) -> tuple[Array, Array]:
    layout = scenario.workload.laid_out(scenario.layout)
    room = cache_room(scenario, layout)
    return room, cache_tokens(scenario, layout, room)


def _image_text(vision: VisionEncoder, images: float) -> str:
    """Size and work of an image in a prompt, and how many are priced."""
    if not float(vision.patches):
        return "images not determined (model.image_patches says their size)"
    requested = f"{images:g} in a prompt" if images else "none in a prompt (workload.images)"
    return (
        f"an image of {float(vision.patches):,.0f} patches is {float(vision.tokens_per_image()):,.0f} tokens and"
        f" {engineering(float(vision.flops_per_image()), 'FLOP')} in the encoder, {requested}"
    )


def model_text(scenario: Scenario) -> str:
    """One line on a language model that serves: parameters, bytes of weights, bytes of cache a token."""
    work = scenario.workload
    if not isinstance(work, AbstractServing):
        return ""
    model, one = work.model, asarray(1.0)
    held = [float(model.attention.cache_bytes(asarray(tokens), one, work.precision)) for tokens in (2.0**25, 2.0**26)]
    each = (held[1] - held[0]) / 2.0**25 * float(model.layers)
    parts = [f"{float(model.parameters()) / 1e9:,.4g} billion parameters"]
    if model.vision is not None:
        parts.append(f"{float(model.vision.parameters()) / 1e9:.3g} of them in the vision encoder")
    parts += [f"{engineering(float(model.stored_bytes(work.precision)), 'B', 4)} of weights"]
    parts += [f"{each:,.6g} B of KV cache a token"]
    if model.predicts_ahead:
        loaded = "loaded and run" if getattr(work, "own_drafts", False) else "not loaded (workload.own_drafts)"
        parts.append(
            f"{float(model.ahead_parameters()) / 1e9:.3g} billion more in modules that predict ahead, {loaded}"
        )
    if model.vision is not None:
        parts.append(_image_text(model.vision, float(work.images)))
    return f"{model.name}: {', '.join(parts)}"


# Worth of room for prefixes: what a terabyte more of each tier would bring, at the margin, beside its price.
#
# A terabyte over all devices raises the requests a second that the cluster serves by some share; that share of the
# cluster's price is what it is worth, whatever the memory itself costs. Where the rate is given it shortens first
# tokens.
#
# Assumes: slopes at the design's own room, by differences of `STEP`; a terabyte beyond the working set is worth
# nothing.


STEP = 1e-3  # of a capacity
LEAST_S = 1e-6  # of a first token a terabyte, below which nothing is said
TB = 1e12
NAMES = {"hbm": "HBM", "host": "host memory", "pool": "pool", "store": "store"}


class PrefixCacheValue(NamedTuple):
    """A terabyte more of a tier: share of prompts more that is found, of requests more, seconds less, dollars."""

    hit_ratio: float
    requests: float
    ttft_s: float
    usd: float
    price_usd: float


def prefix_worth(scenario: Scenario, numbers: dict[str, float]) -> dict[str, PrefixCacheValue]:
    """Worth by tier.

    Args:
        scenario: a design with `workload.prefix_cache`.
        numbers: its metrics.
    """
    result: dict[str, PrefixCacheValue] = {}
    for tier, (path, each, price) in _capacities(scenario).items():
        current = float(get_path(scenario, path))
        more = STEP * (current or each)
        there = numbers_of(replace(scenario, {path: as_leaf(current + more)}))
        by = each / more  # of a terabyte

        def change(name: str, there: dict[str, float] = there, by: float = by) -> float:
            return (there[name] - numbers[name]) * by

        share = change("requests_per_s") / numbers["requests_per_s"]
        result[tier] = PrefixCacheValue(
            change("prefix_hit_rate"), share, -change("ttft_s"), share * numbers["capex_usd"], price
        )
    return result


def _capacities(scenario: Scenario) -> dict[str, tuple[str, float, float]]:
    """Tier -> path of its capacity, what of it a terabyte over all devices is, dollars of a terabyte."""
    devices = float(scenario.layout.devices)
    memory, host, prefix = scenario.cluster.accelerator.hbm, scenario.cluster.host.memory, "cluster.accelerator.hbm"
    result: dict[str, tuple[str, float, float]] = {}

    def add(tier: str, path: str, part: Any, sharers: float = 1.0) -> None:
        price = getattr(part, "usd_per_byte", None)
        if getattr(part, "capacity_bytes", None) is not None:
            result[tier] = path, TB / devices * sharers, 0.0 if price is None else TB * float(price)

    if isinstance(memory, TieredMemory):
        for name, tier in memory.tiers.items():
            short_name = "hbm" if name == memory.near else "pool" if len(memory.tiers) == 2 else name
            if isinstance(tier, SharedPool):
                add(short_name, f"{prefix}.tiers.{name}.tier.capacity_bytes", tier.tier, float(tier.sharers))
            else:
                add(short_name, f"{prefix}.tiers.{name}.capacity_bytes", tier)
    else:
        add("hbm", f"{prefix}.capacity_bytes", memory)
    add("host", "cluster.host.memory.capacity_bytes", host)
    work: Any = scenario.workload
    if float(work.prefix_cache.store_bytes) > 0:
        result["store"] = "workload.prefix_cache.store_bytes", TB, 0.0
    return result


def prefix_text(scenario: Scenario, worth: dict[str, PrefixCacheValue]) -> list[str]:
    """Lines: what is found where in how much room, and what a terabyte more would be worth."""
    hits = hits_of(scenario)
    parts = [
        f"{share:.1%} in {NAMES.get(tier, tier)} ({_tokens(hits.room_tokens[tier])} tokens)"
        for tier, share in hits.tiers.items()
        if hits.room_tokens[tier] > 0
    ]
    lines = [f"prefix caches find {hits.share:.1%} of prompt tokens: {', '.join(parts) or 'no room is left'}"]
    for tier, one in worth.items():
        messages: list[str] = []
        if one.requests > 0:
            messages.append(f"{one.requests:+.2g} of the requests/s, worth {money(one.usd)}")
        if one.ttft_s > LEAST_S:
            messages.append(f"TTFT {1e3 * one.ttft_s:.3g} ms shorter")
        what = " and ".join(messages) or "worth nothing: all that comes back is found, or finds no time to save"
        price = f" (its price: {money(one.price_usd)})" if one.price_usd else ""
        lines.append(f"a TB more of {NAMES.get(tier, tier)} over all devices{price}, at the margin: {what}")
    return lines


def _tokens(count: Array | float) -> str:
    value = float(count)
    return f"{value / 1e6:.3g} M" if value >= 1e6 else f"{value / 1e3:.3g} k"


MEMORY_SHARES = ("usage.hbm", "usage.hbm.engine")
NEAR = 0.9  # used share of a memory from which it is said how likely it fits


def evaluate_design(
    overrides: list[str],
    *,
    as_json: bool = False,
    top: int = 10,
    remarks: Sequence[str] = (),
    explain: bool = False,
    clients_wait: bool = False,
) -> None:
    """Price the scenario of the configuration and print it; nothing is printed of one that is refused.

    Args:
        overrides: of the configuration.
        as_json: numbers alone, as one object.
        top: longest operations that are shown.
        remarks: lines of how the overrides came about, for stderr.
        explain: print what columns and rows mean.
        clients_wait: requests that the cache has no room for wait at their clients, as a concurrency is meant.

    Raises:
        ConfigError: bad configuration, a plan that breaks a rule, or a design that cannot run.
    """
    prepare_jax()
    scenario, provenance = documented_scenario(*overrides)
    with naming_unusual(scenario, provenance):
        counted, line = sized(scenario, overrides)
        if counted:
            overrides = [*overrides, *counted]
            scenario, provenance = documented_scenario(*overrides)
        check_boxes(scenario)
        check_hopeful(scenario)
        scenario, instead = legal_start(scenario, overrides)
        check_plan(scenario)
        scenario, waiting = with_waiting_clients(scenario) if clients_wait else (scenario, "")
        check_memory(scenario)
    roomy = with_room(scenario)  # one trace for numbers and draws
    account = priced(roomy)
    numbers, drawn = numbers_in(account), uncertain(roomy)
    check_load(scenario, numbers)
    check_outcome(scenario, numbers)
    for text in (*remarks, *(f"codesign: {one}" for one in (line, instead, waiting) if one)):
        print(text, file=sys.stderr)
    say_default(overrides)
    say_devices(overrides)
    say_idle(scenario, overrides)
    warn(unusual(scenario, provenance=provenance))
    say_trace(provenance)
    for line in format_lines(scenario):
        print(f"codesign: {line}", file=sys.stderr)
    worth = prefix_worth(scenario, numbers) if has_prefix_cache(scenario) else {}
    if as_json:
        worths = {f"prefix_worth_usd_per_tb_{tier}": one.usd for tier, one in worth.items()}
        print(dumps(numbers | worths | drawn.columns(), indent=2))
        return
    near, far = scenario.cluster.accelerator.hbm, scenario.cluster.host.memory
    capacity = {"hbm": float(near.usable_bytes()), "ddr": float(far.usable_bytes())}
    table = ops(scenario, account)
    tables = sections(numbers, drawn.intervals, table, capacity, top, scenario.workload.words.item)
    show_evaluation(console(), job_text(scenario), tables, scenario.workload.words, explain=explain)
    is_near = max(numbers.get(name, 0.0) for name in MEMORY_SHARES) > NEAR
    lines = [
        model_text(scenario), *(prefix_text(scenario, worth) if worth else ()),
        room_text(scenario) if remarks else "",  # of a launch command: engines print it when they start
        chance_text(scenario) if is_near else "", remarks_text(numbers | drawn.columns()),
        *(f"which cable limits {group}: {text}" for group, text in busy_links(scenario, table)[1].items()),
    ]  # fmt: skip
    for line in filter(None, lines):
        console().print(line, highlight=False)
    for remark in (*scenario.cluster.accelerator.hbm.remarks(), *rounding_remarks(numbers)):
        console().print(f"note: {remark}")


def rounding_remarks(numbers: Mapping[str, float]) -> tuple[str, ...]:
    """Algorithms that round were chosen for a job none of whose sums they round."""
    if numbers.get("log_perplexity_penalty") != 0:
        return ()
    return (
        "an algorithm that rounds what it sums was chosen, but it rounds no sum of this job: sums of training, of a"
        " group of one and of numbers that have no more bits are exact, and a sum that leaves the node is formed"
        " outside",
    )
