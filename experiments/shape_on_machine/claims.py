"""How the best shape of a model moves with the machine: price of memory, links, in-switch sums, photonic memory."""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign import solve, study_from_config
from codesign.evidence.reproduction import Claim
from codesign.report.findings import headline, panels

NAME = "shape_on_machine"
TRAINED = "compute_optimal_machine"
BUDGET = 3000.0  # USD, of training
USUAL_USD_PER_BYTE, UP, OUT = 15.7e-9, 450e9, 50e9
PRICES = (1, 3, 10)  # of HBM, over what it costs
LINKS = (50e9, 100e9, 200e9, 450e9)  # bytes/s of a device, each way, inside the node
CARDS = (3e9, 6.25e9, 12.5e9, 50e9)  # bytes/s of a device, each way, between nodes
USD = (0.3, 0.8)  # for a million tokens
BETWEEN = 0.65  # USD per million tokens at which neither money nor a token's time binds everywhere
HBM = "cluster.accelerator.hbm.usd_per_byte"
LINK = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
CARD = "cluster.network.scale_out.fabric.bandwidth_bytes_per_s"
MACHINES = {
    "as it is": (),
    "switches that add (NVLS)": ("collective=nvls",),
    "switches that add (SCIN)": ("fabric=scin", "collective=scin"),
    "links of 100 GB/s": (f"{LINK}=100e9",),
    "HBM at 3 times its price": (f"{HBM}={3 * USUAL_USD_PER_BYTE}",),
    "HBM at 10 times its price": (f"{HBM}={10 * USUAL_USD_PER_BYTE}",),
    "half the HBM, a photonic pool": ("memory=hbm_and_photonic_pool",),
    "a photonic pool alone": ("memory=photonic_pool",),
}
FIXED = tuple(f"~space.hardware.{name}" for name in ("compute", "hbm", "scale_out_bandwidth"))


class Best(NamedTuple):
    """The best model on one machine with the gap of its proof; no loss where no model keeps the limits."""

    reducible: float
    gap: float
    row: pd.Series

    @property
    def billions(self) -> float:
        """Parameters, 1e9; none where no model keeps the limits."""
        return float(self.row["parameters"]) / 1e9 if math.isfinite(self.reducible) else math.nan


def _best(*overrides: str) -> Best:
    solution = solve(study_from_config(*overrides))
    if not solution.feasible:
        return Best(math.inf, 0.0 if solution.certified else math.nan, solution.best)
    gap = solution.gap if solution.certified and solution.gap is not None else math.nan
    return Best(float(solution.best["loss_reducible"]), gap, solution.best)


@functools.cache
def served(usd: float, *machine: str) -> Best:
    """The best model that a machine serves for so much a million tokens."""
    return _best(f"experiment={NAME}", f"objective.limits.usd_per_million_tokens={usd}", *machine)


@functools.cache
def trained(price: float, card: float) -> Best:
    """The best model that 3,000 USD train, by price of HBM and rate of the cards between nodes."""
    return _best(
        f"experiment={TRAINED}", f"objective.limits.usd_to_train={BUDGET}", "search.gap=5e-4", *FIXED,
        f"{HBM}={price * USUAL_USD_PER_BYTE}", f"{CARD}={card}",
    )  # fmt: skip


def served_at(price: float, link: float) -> Best:
    """As `served` by price of HBM and rate of the links inside the node."""
    return served(BETWEEN, f"{HBM}={price * USUAL_USD_PER_BYTE}", f"{LINK}={link}")


def _grid(found: Sequence[Sequence[Best]]) -> np.ndarray:
    return np.asarray([[at.reducible for at in row] for row in found])


def served_grid() -> list[list[Best]]:
    """Rows: prices of HBM; columns: links."""
    return [[served_at(price, link) for link in LINKS] for price in PRICES]


def trained_grid() -> list[list[Best]]:
    """Rows: prices of HBM; columns: cards."""
    return [[trained(price, card) for card in CARDS] for price in PRICES]


def _worst(later: np.ndarray, earlier: np.ndarray) -> float:
    """By how much a machine that is better in one number has a worse model; gaps of both proofs let it."""
    return float(np.max(later - earlier, initial=0.0))


def claims() -> list[Claim]:
    """Proofs; no machine that is better in one number has a worse model; no token faster than its weights are read."""
    result = []
    for told, grid in (("serving", served_grid()), ("training", trained_grid())):
        gaps = max(at.gap for at in itertools.chain(*grid))
        result.append(Claim(NAME, f"{told}: largest gap of {len(PRICES) * len(grid[0])} optima, %", None, 100 * gaps,
                           5e-4, "certified", error=gaps))  # fmt: skip
        loss = _grid(grid)
        dearer, slower = _worst(loss[:-1], loss[1:]), _worst(loss[:, 1:], loss[:, :-1])
        result.append(Claim(NAME, f"{told}: dearer HBM, never a better model, nats", None, dearer, 1e-3,
                           "predicted, within the gaps", error=dearer))  # fmt: skip
        links = "links in the node" if told == "serving" else "cards between nodes"
        result.append(Claim(NAME, f"{told}: slower {links}, better model, nats", None, slower, None,
                           "note: slower ones cost less, and do not bind everywhere"))  # fmt: skip
    better = served(USD[1]).reducible - served(USD[1], f"{LINK}=100e9").reducible
    told = f"slower links where money does not bind ({USD[1]:.2f} USD/M): never a better model, nats"
    result.append(Claim(NAME, told, None, better, 1e-3, "predicted, within the gaps", error=max(better, 0.0)))
    usual = served(USD[0])
    read = 2 * float(usual.row["parameters"]) / float(usual.row["var.tp"]) / 3.35e12
    slower = float(usual.row["tpot_s"]) / read
    result.append(Claim(NAME, "time a token over that of reading its weights at 3.35 TB/s", None, slower, 0.0,
                       "predicted: never below 1", error=max(1 - slower, 0.0)))  # fmt: skip
    for name in ("switches that add (NVLS)", "switches that add (SCIN)"):
        for usd in USD:
            worse = served(usd, *MACHINES[name]).reducible - served(usd).reducible
            result.append(Claim(NAME, f"{name} at {usd:.2f} USD/M: loss above that without, nats", None, worse, None,
                               "note: switches that add bring a larger model where a token's time binds"))  # fmt: skip
    return result


def tables() -> dict[str, pd.DataFrame]:
    """The best model on each machine, served; and trained, by price of memory and rate of the cards."""
    rows = []
    for name, machine in MACHINES.items():
        for usd in USD:
            at = served(usd, *machine)
            there = math.isfinite(at.reducible)
            rows.append({
                "machine": name, "USD per million tokens": usd, "above entropy, nats a token": at.reducible,
                "proven within, %": 100 * at.gap, "parameters, 1e9": at.billions,
                **{key: float(at.row[f"var.{key}"]) if there else math.nan
                   for key in ("hidden", "layers", "tp", "micro_batch")},
                "ms a token": 1e3 * float(at.row["tpot_s"]) if there else math.nan,
            })  # fmt: skip
    bought = [
        {
            "HBM price over today's": price, "card, GB/s": card / 1e9, "above entropy, nats a token": at.reducible,
            "proven within, %": 100 * at.gap, "parameters, 1e9": at.billions,
            "tokens, 1e9": float(at.row["run_tokens"]) / 1e9,
            **{key: float(at.row[f"var.{key}"]) for key in ("hidden", "layers", "micro_batch", "zero", "device_count")},
        }
        for price, row in zip(PRICES, trained_grid(), strict=True) for card, at in zip(CARDS, row, strict=True)
    ]  # fmt: skip
    return {"served": pd.DataFrame(rows).replace(math.inf, math.nan), "trained": pd.DataFrame(bought)}


def figures() -> dict[str, Figure]:
    """Parameters of the best model over price of memory and rate of links."""
    figure, (row,) = panels(3.4, columns=2)
    drawn = (
        (f"served: 5 ms a token, {BETWEEN:.2f} USD per million", served_grid(), LINKS, "link in the node, GB/s"),
        (f"trained for {BUDGET:,.0f} USD", trained_grid(), CARDS, "card between nodes, GB/s"),
    )
    for axes, (title, grid, rates, label) in zip(row, drawn, strict=True):
        sizes = np.asarray([[at.billions for at in row] for row in grid])
        axes.imshow(np.log(sizes), origin="lower", aspect="auto", cmap="Blues", alpha=0.5)
        for (price, rate), size in np.ndenumerate(sizes):
            at = grid[price][rate].row
            shape = f"{size:.1f} B\n{at['var.hidden']:,.0f} x {at['var.layers']:.0f}"
            axes.annotate(shape, (rate, price), ha="center", va="center", fontsize=8)
        axes.grid(visible=False)
        axes.set_xticks(range(len(rates)), [f"{rate / 1e9:g}" for rate in rates])
        axes.set_yticks(range(len(PRICES)), [f"{price} x" for price in PRICES])
        axes.set(xlabel=label, ylabel="price of HBM")
        axes.set_title(title, loc="left", fontsize=10)
    headline(figure, "Dear memory and slow links make the best model smaller; in training, cards beyond 12.5 GB/s cost "
             "more than they bring")  # fmt: skip
    return {"best model by machine": figure}
