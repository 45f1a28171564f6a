"""Where pooled photonic memory begins to pay: die edge, placement, power and money shared between memory and links.

64 accelerators decode one batch. Each die's edge is divided among HBM stacks, scale-up links and photonic ports,
weights and cache among HBM and pool; power and purchase price are bounded. The best design with a pool is compared
with the best one without, over context lengths and energies per bit of the port.
"""

import dataclasses
import functools
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array
from matplotlib.axes import Axes

from codesign import Scenario, evaluate, get_path, replace, scenario_from_config
from codesign.evidence.reproduction import Claim
from codesign.model.hardware import Link, MemoryTier, Placement, SharedPool, Shoreline, TieredMemory
from codesign.model.metrics import ScenarioEvaluation
from codesign.report.findings import BLUE, GREEN, ORANGE, SKY, Label, headline, name_ends, panels, plain_ticks
from codesign.staging import at_many, slopes_of

NAME = "memory_codesign"
DEVICES, SHARERS, OUTPUT = 64.0, 16.0, 256.0
CONTEXTS = (8_192.0, 65_536.0, 262_144.0, 1_048_576.0)
PJ_PER_BIT = (1.0, 10.0, 30.0, 100.0)
PUBLISHED_PJ = 10.0  # ding2025pfa section 4.2
MODELS = {"405B": ("llama31_405b", {}), "1T": ("llama31_405b", {"layers": 312.0}), "DeepSeek-V3": ("deepseek_v3", {})}
MM_PER_PHY, STACK_BYTES, STACK_BYTES_PER_S = 11.0, 36e9, 1.0e12  # assumed PHY width; HBM3E stack of the document
SCALE_UP_PER_MM = 62.5e9  # assumed: 0.5 Tb/s/mm each way of 112G SerDes
PORT_PER_MM = 500e9  # 4.0 Tb/s/mm: 16 wavelengths of 32 Gb/s a fibre at 127 um (assumed)
PORT_BYTES_PER_S, USD_PER_PORT = 0.9e12, 3600.0  # 7.2 Tb/s (ding2025pfa); assumed 0.5 USD per Gb/s
MODULE_BYTES, MODULE_BYTES_PER_S = 2e12, 1.675e12  # ding2025pfa: DDR5 of a module behind its HBM3E
BUDGET = {"edge_mm": 72.0, "power_w": 1700.0, "usd": 70e3}  # per accelerator; assumed
LATENCY_S = {"interactive": 0.1, "offline": 1.0}  # most a token may take
RANKS, EXPERT_RANKS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0), (1.0, 4.0, 8.0, 16.0, 32.0, 64.0)
POPULATION, ROUNDS, PARENTS = 8192, 12, 32
VARIABLES = ("hbm_edge", "link_edge", "port_edge", "modules", "weights_near", "batch", "ranks", "expert_ranks")
BOUNDS = {"modules": (0.05, 4.0), "weights_near": (0.02, 1.0), "batch": (1.0, 8192.0)}
WIN = 1.05  # a gain below would not carry a second technology


@functools.cache
def template(model: str) -> Scenario:
    """Serving in fp8 with a 16-bit cache on H100 arithmetic; memory and links are replaced by the design."""
    base = scenario_from_config(
        "accelerator=h100_sxm", "calibration=h100_sxm_roofline", "workload=static_batch", f"model={MODELS[model][0]}",
        "plan=serving_node", f"cluster.device_count={DEVICES}", "workload.precision.compute=fp8",
        "workload.precision.weights=fp8", "fabric.endpoints=64", f"workload.output_tokens={OUTPUT}",
    )  # fmt: skip
    near = MemoryTier(STACK_BYTES, STACK_BYTES_PER_S, 31.2e-12, 15.7e-9)  # oconnor2017; stratrix_h100
    far = MemoryTier(SHARERS * MODULE_BYTES, SHARERS * MODULE_BYTES_PER_S, 43.2e-12, 4.43e-9)
    pool = SharedPool(far, Link(0.5e-6, 1 / PORT_BYTES_PER_S, 80e-12), SHARERS, SHARERS, usd_per_port=USD_PER_PORT)
    halves = {name: Placement({"hbm": 0.5, "pool": 0.5}) for name in ("weights", "kv_cache")}
    memory = TieredMemory({"hbm": near, "pool": pool}, halves, near="hbm", prefetch=1.0)
    density = {"hbm": STACK_BYTES_PER_S / MM_PER_PHY, "scale_up": SCALE_UP_PER_MM, "pool": PORT_PER_MM}
    edge = Shoreline(BUDGET["edge_mm"], density)
    device = dataclasses.replace(base.cluster.accelerator, hbm=memory, shoreline=edge)
    scenario = dataclasses.replace(base, cluster=dataclasses.replace(base.cluster, accelerator=device))
    return replace(scenario, {f"workload.model.{name}": value for name, value in MODELS[model][1].items()})


def design(base: Scenario, case: dict[str, Array], unit: dict[str, Array]) -> Scenario:
    """A point of the unit cube as hardware, plan and placement; what HBM cannot hold of the cache lies in the pool."""
    edge, logs = case["edge_mm"], {}
    for name, (low, high) in BOUNDS.items():
        logs[name] = low * (high / low) ** unit[name]
    stacks = edge * (0.05 + 0.95 * unit["hbm_edge"]) / MM_PER_PHY
    link = edge * (0.01 + 0.30 * unit["link_edge"]) * SCALE_UP_PER_MM
    ports = case["pool"] * (0.01 + 8.0 * unit["port_edge"]) + (1 - case["pool"]) * 1e-6
    modules = case["pool"] * logs["modules"] + (1 - case["pool"]) * 1e-6
    batch, ranks = jnp.floor(logs["batch"]), _chosen(RANKS, unit["ranks"])
    # an expert's ranks come out of the replicas; a dense model has no use for them
    experts = jnp.minimum(_chosen(EXPERT_RANKS, unit["expert_ranks"]), DEVICES / ranks)
    memory = "cluster.accelerator.hbm"
    scenario = replace(base, {
        "workload.input_tokens": case["context"], "plan.tp": ranks, "plan.micro_batch": batch, "plan.pp": 1.0,
        "plan.ep": experts,
        "cluster.network.scale_up.fabric.bandwidth_bytes_per_s": link,
        "cluster.accelerator.shoreline.edge_mm": edge,
        f"{memory}.tiers.hbm.capacity_bytes": stacks * STACK_BYTES,
        f"{memory}.tiers.hbm.bandwidth_bytes_per_s": stacks * STACK_BYTES_PER_S,
        f"{memory}.tiers.pool.tier.capacity_bytes": SHARERS * modules * MODULE_BYTES,
        f"{memory}.tiers.pool.tier.bandwidth_bytes_per_s": SHARERS * modules * MODULE_BYTES_PER_S,
        f"{memory}.tiers.pool.ports": SHARERS * ports,
        f"{memory}.tiers.pool.ports_per_accelerator": ports,
        f"{memory}.tiers.pool.port.energy_j_per_byte": case["pj_per_bit"] * 8e-12,
    })  # fmt: skip
    held, cache = _held(scenario)
    weights = case["pool"] * logs["weights_near"] + (1 - case["pool"])
    room = stacks * STACK_BYTES - weights * held
    kept = jnp.where(case["pool"] > 0, jnp.clip(room / cache, 1e-3, 1.0), 1.0)
    weights, kept = (jnp.clip(share, 1e-4, 1 - 1e-4 * case["pool"]) for share in (weights, kept))
    shares = {"weights": weights, "kv_cache": kept}
    leaves = {f"{memory}.placement.{name}.shares.hbm": share for name, share in shares.items()}
    leaves |= {f"{memory}.placement.{name}.shares.pool": 1 - share for name, share in shares.items()}
    return replace(scenario, leaves)


def _chosen(options: tuple[float, ...], coordinate: Array) -> Array:
    """One of several whole numbers by a coordinate in [0, 1]."""
    return jnp.asarray(options)[jnp.int32(coordinate * len(options) * 0.9999)]


def _held(scenario: Scenario) -> tuple[Array, Array]:
    """Bytes of weights, and of the batch's cache, on one device."""
    layout, job = scenario.layout, scenario.workload
    return job.weight_bytes(layout), job.kv_bytes_per_sequence(layout) * scenario.plan.micro_batch


def judged(base: Scenario, case: dict[str, Array], unit: dict[str, Array]) -> dict[str, Array]:
    """Decoded tokens per second, the largest used share of any limit, and what the design is."""
    scenario = design(base, case, unit)
    metrics, memory = evaluate(scenario), scenario.cluster.accelerator.hbm
    held, cache = _held(scenario)
    tiers = memory.limits({"weights": held, "kv_cache": cache})
    used = {
        "edge": metrics.usage["hbm.shoreline"],
        "power": metrics.provisioned_power_w / (DEVICES * case["power_w"]),
        "money": metrics.capex_usd / (DEVICES * case["usd"]),
        "latency": metrics.extra["tpot_s"] / case["latency_s"],
        "hbm": tiers["hbm"],
        "pool": jnp.where(case["pool"] > 0, tiers["pool"], 0.0),
    }
    worst = jnp.max(jnp.stack([jnp.broadcast_to(share, ()) for share in used.values()]))
    for broken in metrics.violations.values():
        worst = jnp.maximum(worst, 1 + broken)
    placed, edges = memory.placement, memory.edge_bytes_per_s()
    shape = {
        "hbm_mm": edges["hbm"] / (STACK_BYTES_PER_S / MM_PER_PHY),
        "link_mm": scenario.cluster.network["scale_up"].fabric.bandwidth_bytes_per_s / SCALE_UP_PER_MM,
        "port_mm": edges["pool"] / PORT_PER_MM,
        "pool_tb": memory.tiers["pool"].usable_bytes() / 1e12,
        "cache_in_pool": placed["kv_cache"].shares["pool"],
        "weights_in_pool": placed["weights"].shares["pool"],
        "tp": scenario.plan.tp,
        "ep": scenario.plan.ep,
        "batch": scenario.plan.micro_batch,
        "tpot_s": metrics.extra["tpot_s"],
    }
    rate = metrics.extra["decode_tokens_per_s"]
    return {"rate": rate, "worst": worst} | shape | {f"used.{name}": share for name, share in used.items()}


@functools.cache
def _judges() -> Any:
    return at_many(judged, (None, None, 0))


def best(
    model: str, case: dict[str, float], start: tuple[dict[str, float], ...] = (), seed: int = 0
) -> tuple[dict[str, float], dict[str, float]]:
    """The best design found: evolution in the unit cube, steps that shrink.

    Args:
        start: designs to begin with beside random ones.

    Returns:
        Unit coordinates, and what the design does.
    """
    generator = np.random.default_rng(seed)
    traced = {name: jnp.asarray(float(value)) for name, value in case.items()}
    points = generator.random((POPULATION, len(VARIABLES)))
    for index, unit in enumerate(start):
        points[index] = [unit[name] for name in VARIABLES]
    elite, kept = np.empty((0, len(VARIABLES))), {}
    for turn in range(ROUNDS):
        columns = {name: jnp.asarray(points[:, index]) for index, name in enumerate(VARIABLES)}
        answer = {name: np.asarray(values) for name, values in _judges()(template(model), traced, columns).items()}
        kept = {name: np.concatenate([kept.get(name, values[:0]), values]) for name, values in answer.items()}
        elite = np.concatenate([elite, points])
        score = np.log(kept["rate"]) - 30.0 * np.log(np.maximum(kept["worst"], 1.0))
        order = np.argsort(-score, kind="stable")[:PARENTS]
        elite, kept = elite[order], {name: values[order] for name, values in kept.items()}
        step = 0.25 * 0.6**turn
        points = np.clip(elite[generator.integers(PARENTS, size=POPULATION)]
                         + step * generator.normal(size=(POPULATION, len(VARIABLES))), 0.0, 1.0)  # fmt: skip
    feasible = np.where(kept["worst"] <= 1 + 1e-6, kept["rate"], 0.0)
    top = int(feasible.argmax())
    result = {name: float(values[top]) for name, values in kept.items()} | {"feasible": float(feasible[top] > 0)}
    return dict(zip(VARIABLES, elite[top].tolist(), strict=True)), result


def case_of(context: float, latency_s: float, *, pool: bool = True, pj: float = PUBLISHED_PJ) -> dict[str, float]:
    """One question: context, time a token may take, with or without a pool, port energy; the budgets."""
    return {"context": context, "latency_s": latency_s, "pj_per_bit": pj, "pool": float(pool)} | BUDGET


@functools.cache
def comparison() -> pd.DataFrame:
    """The best design of every model, context and port energy, beside the best without a pool."""
    rows = []
    for model, latency, context in itertools.product(MODELS, LATENCY_S.values(), CONTEXTS):
        unit, alone = best(model, case_of(context, latency, pool=False))
        start = (unit,)
        for pj in reversed(PJ_PER_BIT):  # what a dearer port allows, a cheaper one allows as well
            unit, result = best(model, case_of(context, latency, pj=pj), start)
            start = (*start, unit)
            # a design without a pool remains open to those who may have one
            gain = max(result["rate"] * result["feasible"], alone["rate"]) / alone["rate"]
            row = {"model": model, "latency_s": latency, "context": context, "pj_per_bit": pj, "gain": gain}
            rows.append(row | {"alone_tokens_per_s": alone["rate"], "alone_feasible": alone["feasible"]} | result)
    order = ["model", "latency_s", "context", "pj_per_bit"]
    return pd.DataFrame(rows).sort_values(order, kind="stable").reset_index(drop=True)


@functools.cache
def elasticities() -> pd.DataFrame:
    """At 10 pJ/bit: per cent more tokens per per cent of a constant (design fixed) or of a budget (redesigned)."""
    rows = []
    for model in MODELS:
        for latency in LATENCY_S.values():
            context = CONTEXTS[-1]
            case = case_of(context, latency)
            unit, result = best(model, case)
            row = {"model": model, "latency_s": latency, "context": context} | _slopes(model, case, unit)
            for name, value in BUDGET.items():
                more = best(model, case | {name: 1.2 * value}, (unit,))[1]["rate"]
                row[f"budget {name}"] = float(np.log(max(more, result["rate"]) / result["rate"]) / np.log(1.2))
            rows.append(row)
    return pd.DataFrame(rows)


def _slopes(model: str, case: dict[str, float], unit: dict[str, float]) -> dict[str, float]:
    """Elasticities of the decoding rate by constants of the hardware, the design held."""
    memory = "cluster.accelerator.hbm.tiers"
    paths = {
        "HBM bandwidth": f"{memory}.hbm.bandwidth_bytes_per_s",
        "pool bandwidth": f"{memory}.pool.tier.bandwidth_bytes_per_s",
        "port rate": f"{memory}.pool.port.beta_s_per_byte",
        "scale-up bandwidth": "cluster.network.scale_up.fabric.bandwidth_bytes_per_s",
        "fp8 peak": "cluster.accelerator.peak_flops_per_s.fp8",
    }
    traced = ({name: jnp.asarray(float(value)) for name, value in part.items()} for part in (case, unit))
    scenario = design(template(model), *traced)

    def log_rate(account: ScenarioEvaluation) -> list[Array]:
        return [jnp.log(account.metrics.get("decode_tokens_per_s"))]

    (slopes,) = slopes_of(scenario, log_rate, "cluster")
    signs = {"port rate": -1.0}  # the leaf is seconds per byte
    return {
        name: signs.get(name, 1.0) * float(get_path(slopes, path) * get_path(scenario, path))
        for name, path in paths.items()
    }


def turning_point(frame: pd.DataFrame) -> float:
    """Largest pJ/bit of the sweep at which a pool still wins; 0 where it never does."""
    winning = frame[frame["gain"] >= WIN]["pj_per_bit"]
    return float(winning.max()) if len(winning) else 0.0


def claims() -> list[Claim]:
    """Gains at the published 10 pJ/bit, where they begin, and what must hold of any optimum."""
    frame, result = comparison(), []
    for (model, latency, context), part in frame.groupby(["model", "latency_s", "context"], sort=False):
        gain = float(part[part["pj_per_bit"] == PUBLISHED_PJ]["gain"].iloc[0])
        question = f"{model}, {context:,.0f} tokens, {latency:g} s a token"
        words = f"{question}: decoding rate with a pool at 10 pJ/bit over the best without"
        result.append(Claim(NAME, words, None, gain, None, "derived: budgets and densities assumed"))
        words = f"{question}: largest pJ/bit of the sweep at which the pool wins (0: never)"
        result.append(Claim(NAME, words, None, turning_point(part), None, "derived: budgets and densities assumed"))
    over = frame["worst"].where(frame["feasible"] > 0, 1.0).max() - 1
    words = "every reported design keeps every limit (error: largest excess)"
    result.append(Claim(NAME, words, None, float(over), 1e-6, "derived", error=max(0.0, float(over))))
    rising = frame.pivot(index=["model", "latency_s", "context"], columns="pj_per_bit", values="gain")
    worst = float((rising[PJ_PER_BIT[-1]] / rising[PJ_PER_BIT[0]]).max())
    words = "dearest over cheapest port: largest ratio of gains (above 1 only by what the search leaves)"
    result.append(Claim(NAME, words, None, worst, 0.02, "derived", error=max(0.0, worst - 1)))
    return result


def tables() -> dict[str, pd.DataFrame]:
    """Best designs, and elasticities."""
    frame = comparison()
    shown = ["model", "context", "latency_s", "gain", "tp", "ep", "batch", "hbm_mm", "link_mm", "port_mm", "pool_tb",
             "cache_in_pool", "weights_in_pool", "tpot_s"]  # fmt: skip
    return {"Designs at 10 pJ per bit": frame[frame["pj_per_bit"] == PUBLISHED_PJ][shown],
            "All designs": frame, "Elasticities": elasticities()}  # fmt: skip


def figures() -> dict:
    """Gain over contexts, and the division of the edge."""
    frame = comparison()
    gains, above = panels(4.6, len(LATENCY_S), len(MODELS), sharex=True, sharey=True)
    edges, below = panels(4.6, len(LATENCY_S), len(MODELS), sharex=True, sharey=True)
    for row, (name, latency) in enumerate(LATENCY_S.items()):
        for column, model in enumerate(MODELS):
            here = frame[(frame["model"] == model) & (frame["latency_s"] == latency)]
            _gains(above[row][column], here, named=column == len(MODELS) - 1)
            _edge(below[row][column], here[here["pj_per_bit"] == PUBLISHED_PJ], named=column == len(MODELS) - 1)
            for axes in (above[row][column], below[row][column]):
                axes.set_title(f"{model}, {name}")
    for grid, label in ((above, "decoding rate, pool over none"), (below, "die edge, mm")):
        for row in grid:
            row[0].set_ylabel(label)
        for axes in grid[-1]:
            axes.set_xlabel("context, tokens")
    known = frame[frame["pj_per_bit"] == PUBLISHED_PJ]
    fast, slow = (known[known["latency_s"] == latency]["gain"] for latency in sorted(LATENCY_S.values()))
    dear = frame[frame["pj_per_bit"] == PJ_PER_BIT[-1]]["gain"].max()
    headline(gains, f"A pool pays offline (up to {slow.max() - 1:.0%} more tokens at {PUBLISHED_PJ:g} pJ/bit), hardly "
             f"under a tight limit (at most {fast.max() - 1:.0%}) or with ports of {PJ_PER_BIT[-1]:g} pJ/bit "
             f"(at most {dear - 1:.0%})")  # fmt: skip
    parts = known["port_mm"] / known[["hbm_mm", "link_mm", "port_mm"]].sum(axis=1)
    headline(edges, f"Photonic ports take at most {parts.max():.0%} of the die's edge; HBM keeps most of it")
    return {"Gain over context": gains, "Division of the edge": edges}


def _gains(axes: Axes, here: pd.DataFrame, *, named: bool) -> None:
    ends = []
    for (pj, line), colour in zip(here.groupby("pj_per_bit"), (SKY, BLUE, GREEN, ORANGE), strict=True):
        axes.plot(line["context"], line["gain"], "-", color=colour)
        axes.plot(line["context"], line["gain"], ".", color=colour, markersize=4)
        ends.append(Label(float(line["context"].iloc[-1]), float(line["gain"].iloc[-1]), f"{pj:g} pJ/bit", colour))
    axes.axhline(1.0, color="0.4", linewidth=1)
    axes.set(xscale="log", ylim=(0.95, 1.85))
    plain_ticks(axes, "x", CONTEXTS, [f"{context / 1024:.0f}k" for context in CONTEXTS])
    if named:
        name_ends(axes, ends)


def _edge(axes: Axes, part: pd.DataFrame, *, named: bool) -> None:
    below = np.zeros(len(part))
    places, ends = np.arange(len(part)), []
    for key, label, colour in (
        ("hbm_mm", "HBM", BLUE), ("link_mm", "scale-up", ORANGE), ("port_mm", "photonic ports", GREEN)
    ):  # fmt: skip
        values = part[key].to_numpy()
        axes.bar(places, values, bottom=below, color=colour, width=0.75)
        for place, value, start in zip(places, values, below, strict=True):
            if value > 4:
                axes.text(place, start + value / 2, f"{value:.0f}", ha="center", va="center", fontsize=7, color="white")
        ends.append(Label(places[-1], below[-1] + values[-1] / 2, label, colour))
        below = below + values
    axes.set_xticks(places, [f"{context / 1024:.0f}k" for context in part["context"]])
    axes.set_xlim(-0.6, len(part) - 0.4)
    axes.grid(axis="x", visible=False)
    if named:
        name_ends(axes, ends)
