"""Every pair of algorithms at the found plan and hardware: which the chooser names, and what each would cost."""

from functools import cache

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign import evaluate
from codesign.config import scenario_from_config
from codesign.evidence.reproduction import Claim
from codesign.report.findings import headline, panels

NAME = "lumorph_choice"
ALGORITHMS = ("ring", "all_to_all", "sipac", "radix_2", "radix_4")
STANDING = ("ring", "all_to_all", "sipac")  # circuits that stay as they are
PORT = "cluster.network.scale_up.fabric.port"
FOUND = (
    "plan.tp=8", "plan.pp=2", "plan.virtual_stages=1", "plan.offload_optimizer=0",
    "plan.micro_batch=1", "plan.zero=1", "plan.sequence_parallel=1",
    "plan.recompute=none", f"{PORT}.waveguides=16", f"{PORT}.wavelengths=8", f"{PORT}.bits_per_s=65.6e9",
)  # fmt: skip
"""The certified design of `codesign optimize experiment=lumorph_choice`."""
FASTEST_SETUP_S, SLOWEST_SETUP_S = 3.7e-6, 1e-3  # interferometers, mirrors


@cache
def dollars(tensor: str, replicas: str, setup_s: float = FASTEST_SETUP_S) -> float:
    """USD a million tokens with one algorithm inside tensor groups and one among replicas."""
    chosen = (f"plan.tp_algorithm={tensor}", f"plan.data_algorithm={replicas}")
    setup = f"cluster.network.scale_up.fabric.reconfiguration_s={setup_s}"
    scenario = scenario_from_config(f"experiment={NAME}", *FOUND, *chosen, setup)
    return float(evaluate(scenario).usd_per_million_tokens)


def table() -> pd.DataFrame:
    """[tensor groups, replicas] USD a million tokens."""
    return pd.DataFrame(
        [[dollars(tensor, replicas) for replicas in ALGORITHMS] for tensor in ALGORITHMS],
        index=pd.Index(ALGORITHMS, name="tensor groups"), columns=pd.Index(ALGORITHMS, name="replicas"),
    )  # fmt: skip


def claims() -> list[Claim]:
    """What the document's comparison means for a whole job: orderings, then dollars."""
    result = table()
    least = float(result.to_numpy().min())
    standing = float(result.loc[list(STANDING), list(STANDING)].to_numpy().min())
    moved = float(result.loc["radix_2":, "radix_2":].to_numpy().min())
    slow = dollars("all_to_all", "ring", SLOWEST_SETUP_S)

    def ordering(text: str, holds: bool) -> Claim:
        return Claim(NAME, text, 1.0, float(holds), 0.0, "derived", error=float(not holds))

    return [
        ordering("the pair that the search chose (all_to_all, ring) is the cheapest of all 25",
                 dollars("all_to_all", "ring") <= least * (1 + 1e-12)),
        ordering("notes: small tenants keep standing circuits: with groups of 8 no reconfigured pair is cheaper",
                 standing < moved),
        ordering("standing circuits do not feel the switch's set-up time: mirrors (1 ms) cost what interferometers do",
                 abs(slow / standing - 1) < 1e-9),
        ordering("radix 4 is cheaper than radix 2: fewer rounds to set up",
                 dollars("radix_4", "radix_4") < dollars("radix_2", "radix_2")),
        Claim(NAME, "cheapest pair, USD a million tokens", None, least, None, "derived"),
        Claim(NAME, "cheapest pair that reconfigures, USD a million tokens", None, moved, None, "derived"),
        *(Claim(NAME, f"{name} for all on this hardware, USD a million tokens", None, dollars(name, name), None,
                "derived")
          for name in ALGORITHMS),
    ]  # fmt: skip


def tables() -> dict[str, pd.DataFrame]:
    """Every pair."""
    return {"USD a million tokens by pair": table().reset_index()}


def figures() -> dict[str, Figure]:
    """Every pair against the cheapest."""
    result = table()
    over = 100 * (result.to_numpy() / result.to_numpy().min() - 1)
    figure, ((axes,),) = panels(3.6)
    axes.imshow(over, cmap="Blues", aspect="auto")
    for row, column in np.ndindex(over.shape):
        dark = over[row, column] > over.max() / 2
        text = f"+{over[row, column]:.2f} %" if over[row, column] else "cheapest"
        axes.text(column, row, text, ha="center", va="center", color="white" if dark else "black", fontsize=8)
    words = [name.replace("_", " ") for name in ALGORITHMS]
    axes.set_xticks(range(len(words)), words)
    axes.set_yticks(range(len(words)), words)
    axes.set(xlabel="among replicas", ylabel="inside tensor groups of 8")
    axes.grid(visible=False)
    least = result.to_numpy().min()
    moved = float(result.loc["radix_2":, "radix_2":].to_numpy().min()) / least - 1
    headline(figure, f"Standing circuits win: the cheapest pair that reconfigures costs {moved:.1%} more, the "
             f"dearest of "
             f"all {over.max():.1f} %; what groups of 8 use matters most")  # fmt: skip
    return {"What each pair of algorithms costs": figure}
