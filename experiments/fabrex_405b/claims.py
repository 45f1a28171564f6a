"""Llama 3.1 405B served on 8 and on 16 accelerators: the package's serving model on the graphs, a curve fit beside it.

The model has kernels as measured on an MI300X and rings as the graphs allow; how many requests run at once is not
printed, and is its one constant. The curve is a fixed time, and bytes over the fabric's bus bandwidth.
"""

import functools
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.optimize import linprog

from codesign import Scenario, evaluate, replace, scenario_from_config
from codesign.evidence.reproduction import Claim, experiments_folder, load
from codesign.jaxprs import interpreted
from codesign.model.networks.fabrics import Group

NAME = "fabrex_405b"
KINDS = {  # of claims whose standing alone does not say it
    "input": r"GIG-1[3456]\b",
    "note": r"^(constant:|gigabytes over|own serving model, one request|8 accelerators: spread)",
}
INPUT_TOKENS, OUTPUT_TOKENS = 1024, 128
TOKENS_PER_S = {  # of 8 and of 16 accelerators
    "1s-2rp-std-cascade": (24.58, 15.86),
    "1s-2rp-split-cascade": (24.62, 25.38),
    "2s-2rp-split-flat": (24.60, 28.66),
}
ALL_REDUCE = {"1s-2rp-std-cascade": 25.0, "1s-2rp-split-cascade": 54.0, "2s-2rp-split-flat": 100.0}  # GB/s, measured
LAYERS, HIDDEN = 126, 16384
RANKS = (8, 16)
AT_ONCE = range(1, 17)  # requests at once that are tried
OWN_BAR = 0.15  # that of the rates it rests on


def topologies() -> ModuleType:
    """The experiment that builds the graphs."""
    return load(experiments_folder() / "fabrex_topologies")


def fit(bandwidth: dict[str, float]) -> tuple[float, float, dict[str, float]]:
    """Seconds of an answer = fixed + gigabytes / B with the least largest error: (fixed, gigabytes, tokens/s)."""
    seconds = np.array([OUTPUT_TOKENS / TOKENS_PER_S[name][1] for name in bandwidth])
    basis = np.column_stack([np.ones(3), [1 / value for value in bandwidth.values()]]) / seconds[:, None]
    bound = np.vstack([np.hstack([sign * basis, -np.ones((3, 1))]) for sign in (1, -1)])
    result = linprog([0, 0, 1], A_ub=bound, b_ub=[1, 1, 1, -1, -1, -1]).x
    tokens = {name: OUTPUT_TOKENS / (result[0] + result[1] / value) for name, value in bandwidth.items()}
    return float(result[0]), float(result[1]), tokens


@functools.cache
def served(name: str) -> Scenario:
    """The server on one graph: both boxes, bf16, one tensor-parallel group."""
    return scenario_from_config(
        "accelerator=mi300x", f"fabric=fabrex_{name.replace('-', '_')}", "collective=ring", "model=llama31_405b",
        "workload=static_batch", "plan=serving_node", f"workload.input_tokens={INPUT_TOKENS}",
        f"workload.output_tokens={OUTPUT_TOKENS}", "cluster.device_count=16", "plan.tp=16",
    )  # fmt: skip


def _seconds(base: Scenario, requests: Array) -> Array:
    """[ranks, requests at once] seconds until all of them are answered."""

    def one(ranks: float, count: Array) -> Array:
        changes = {"plan.tp": ranks, "cluster.device_count": ranks, "plan.micro_batch": count}
        return evaluate(replace(base, changes)).time_s

    return jnp.stack([jax.vmap(functools.partial(one, float(ranks)))(requests) for ranks in RANKS])


@functools.cache
def tokens_of_a_request(name: str) -> np.ndarray:
    """[ranks, `AT_ONCE`] tokens per second that one of so many requests sees."""
    counts = jnp.asarray(list(AT_ONCE), dtype=float)
    return OUTPUT_TOKENS / np.asarray(interpreted(_seconds, always=True)(served(name), counts))


@functools.cache
def at_once() -> int:
    """How many requests at once bring all six throughputs nearest: the least largest error of logarithms."""
    apart = [
        np.abs(np.log(tokens_of_a_request(name) / np.array(values)[:, None])) for name, values in TOKENS_PER_S.items()
    ]
    return list(AT_ONCE)[int(np.concatenate(apart).max(axis=0).argmin())]


def own_model() -> list[Claim]:
    """Six throughputs from the serving model on the graphs, and what a single request would see."""
    best, rows = at_once(), []
    for name, values in TOKENS_PER_S.items():
        told = tokens_of_a_request(name)
        for ranks, value, each in zip(RANKS, values, told, strict=True):
            text = f"own serving model, {best} requests at once: {name}, {ranks} accelerators, tokens/s"
            rows.append(Claim(NAME, text, value, float(each[best - 1]), OWN_BAR, "fitted 1 on 6"))
            text = f"own serving model, one request: {name}, {ranks} accelerators, tokens/s"
            rows.append(Claim(NAME, text, value, float(each[0]), None, "derived"))
    sixteen = {name: float(tokens_of_a_request(name)[1, best - 1]) for name in TOKENS_PER_S}
    order = sorted(sixteen, key=lambda name: sixteen[name]) == sorted(
        TOKENS_PER_S, key=lambda name: TOKENS_PER_S[name][1]
    )
    inside = float(tokens_of_a_request("1s-2rp-std-cascade")[0, best - 1])
    worse = sixteen["1s-2rp-std-cascade"] < inside < sixteen["2s-2rp-split-flat"]
    return [
        *rows,
        Claim(NAME, "own serving model: order of the three topologies (1: exact)", 1.0, float(order), 0.0, "derived"),
        Claim(NAME, "own serving model: 16 lose to 8 on std-cascade and win on split-flat, as measured (1: yes)", 1.0,
              float(worse), 0.0, "derived"),
    ]  # fmt: skip


def box_rates() -> dict[str, float]:
    """GB/s of a group of 8, which stays inside a box, on each graph."""
    shared = topologies()
    return {name: 1e-9 / float(shared.fabric(name).link(Group(8.0)).beta_s_per_byte) for name in TOKENS_PER_S}


def claims() -> list[Claim]:
    """Two constants for three throughputs; the same throughput wherever traffic stays in the box."""
    fixed, gigabytes, tokens = fit(ALL_REDUCE)
    rows = [
        Claim(NAME, f"{name}, 16 accelerators: tokens/s", values[1], tokens[name], 0.06, "fitted 2 on 3")
        for name, values in TOKENS_PER_S.items()
    ]
    inside = float(np.mean([values[0] for values in TOKENS_PER_S.values()]))
    rows += [
        Claim(NAME, f"{name}, 8 accelerators: tokens/s", values[0], inside, 0.002, "fitted 1 on 3")
        for name, values in TOKENS_PER_S.items()
    ]
    return own_model() + rows + derived(tokens) + identified(fixed, gigabytes)


def derived(tokens: dict[str, float]) -> list[Claim]:
    """What the graphs say by themselves: order, equality inside a box, and the fit with their own rates."""
    shared, boxes = topologies(), box_rates()
    rates = {name: shared.bus_bandwidth(shared.fabric(name)) for name in TOKENS_PER_S}
    order = sorted(rates, key=lambda name: rates[name]) == sorted(rates, key=lambda name: TOKENS_PER_S[name][1])
    spread = max(boxes.values()) / min(boxes.values()) - 1
    measured = [values[0] for values in TOKENS_PER_S.values()]
    scatter = max(measured) / min(measured) - 1
    _, _, own = fit(rates)
    worst = max(abs(own[name] / TOKENS_PER_S[name][1] - 1) for name in own)
    speedup = tokens["2s-2rp-split-flat"] / tokens["1s-2rp-std-cascade"]
    return [
        Claim(NAME, "order of the three topologies, 16 accelerators (1: exact)", 1.0, float(order), 0.0, "derived"),
        Claim(NAME, "8 accelerators: spread over the topologies (the graph: traffic stays in the box)",
              scatter, spread, 0.002, "derived", error=abs(scatter - spread)),
        Claim(NAME, "16 accelerators with the graphs' own rates: largest error", None, worst, 0.06,
              "fitted 2 on 3, rates from the graphs", error=worst),
        Claim(NAME, "the graphs' rates over the measured ones: largest less smallest, what that miss rests on", None,
              float(np.ptp([rates[name] / ALL_REDUCE[name] for name in rates])), None, "derived"),
        Claim(NAME, "GIG-19 best speedup of 16 accelerators", 1.8, speedup, 0.06, "fitted 2 on 3"),
        Claim(NAME, "GIG-13 tensor-parallel size inside a box (input)", 8, 8, 0.0, "published"),
        Claim(NAME, "GIG-14 tensor-parallel size over both boxes (input)", 16, 16, 0.0, "published"),
        Claim(NAME, "GIG-15 input tokens (input)", 1024, INPUT_TOKENS, 0.0, "published"),
        Claim(NAME, "GIG-16 output tokens (input)", 128, OUTPUT_TOKENS, 0.0, "published"),
    ]  # fmt: skip


def identified(fixed: float, gigabytes: float) -> list[Claim]:
    """The two constants, and what one request would send."""
    tokens = INPUT_TOKENS + OUTPUT_TOKENS
    one = 2 * 15 / 16 * 2 * LAYERS * tokens * HIDDEN * 2 / 1e9  # two all-reduces a layer, 16 bits, bus bytes
    reason = "not determined: number of requests at once and number format are not printed"
    return [
        Claim(NAME, "constant: fixed seconds of an answer", None, fixed, None, "fitted 2 on 3"),
        Claim(NAME, "constant: gigabytes on the bus of an answer", None, gigabytes, None, "fitted 2 on 3"),
        Claim(NAME, "gigabytes over those of one request in 16 bits", None, gigabytes / one, None, reason),
    ]
