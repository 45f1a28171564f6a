"""Linear programmes over a topology: the best division of traffic, and what each link is worth.

    rings      max sum r_k   subject to   sum_k A[e, k] r_k <= capacity_e,  r >= 0
    crossings  max flow from one part to another, a variable per link

The dual price y_e >= 0 is the rate gained per unit of capacity of link e, and sum_e y_e capacity_e is the rate: the
shares y_e capacity_e / rate say which cable limits the job. Cables in series that are full together share one price in
any proportion; the programme reports one such division, and `gains` asks for whole kinds.
"""

from dataclasses import dataclass

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]  # loads its parts when asked for

from ....core.errors import ConfigError
from .graph import Topology

FULL = 1 - 1e-9


@dataclass(frozen=True, eq=False)
class FlowSolution:
    """rate: payload bytes per second; flow: of each variable; price: [E] d rate / d capacity of each link."""

    rate: float
    flow: np.ndarray
    price: np.ndarray


def best_rates(load: np.ndarray, capacity: np.ndarray) -> FlowSolution:
    """The best rates of rings (or other flows) on one topology.

    Args:
        load: [E, rings] times each ring crosses each link.
        capacity: [E] bytes per second.
    """
    used = load.any(axis=1)
    matrix, scale = scipy.sparse.csr_matrix(load[used]), float(capacity[used].max())
    result = scipy.optimize.linprog(-np.ones(load.shape[1]), A_ub=matrix, b_ub=capacity[used] / scale, method="highs")
    price = np.zeros(len(capacity))
    price[used] = -np.asarray(result.ineqlin.marginals)
    return FlowSolution(-result.fun * scale, result.x * scale, price)


def crossings(topology: Topology, sources: np.ndarray, sinks: np.ndarray) -> FlowSolution:
    """Most bytes per second that can leave one set of devices for another, all ways used.

    Divided by the rate of one cable this counts the independent crossings. Endpoints may pass traffic on: a ring does.

    Raises:
        ConfigError: a device on both sides, or an empty side.
    """
    if not len(sources) or not len(sinks) or set(sources) & set(sinks):
        raise ConfigError("crossings: the two parts must be different devices, at least one on each side")
    edges, nodes = len(topology.source), len(topology.nodes)
    scale = float(topology.bandwidth_bytes_per_s.max())
    rows = np.concatenate([topology.source, topology.target])
    columns = np.tile(np.arange(edges), 2)
    values = np.concatenate([np.ones(edges), -np.ones(edges)])
    balance = scipy.sparse.coo_matrix((values, (rows, columns)), (nodes, edges)).tocsr()
    inner = np.ones(nodes, bool)
    inner[topology.endpoints[np.concatenate([sources, sinks])]] = False
    leaving = np.asarray(balance[topology.endpoints[sources]].sum(axis=0)).ravel()
    bounds = np.column_stack([np.zeros(edges), topology.bandwidth_bytes_per_s / scale])
    kept = balance[inner]
    result = scipy.optimize.linprog(-leaving, A_eq=kept, b_eq=np.zeros(kept.shape[0]), bounds=bounds, method="highs")
    return FlowSolution(-result.fun * scale, result.x * scale, -np.asarray(result.upper.marginals))


def equal_rate(load: np.ndarray, capacity: np.ndarray) -> float:
    """Payload rate of a group whose flows share the traffic as `load` [E] says: min capacity / load."""
    used = load > 0
    return float((capacity[used] / load[used]).min()) if used.any() else float("inf")


def gains(topology: Topology, load: np.ndarray, factor: float = 2.0) -> dict[str, float]:
    """Kind of link -> how much faster a group would be if every link of that kind were `factor` times as fast."""
    now, result = equal_rate(load, topology.bandwidth_bytes_per_s), dict[str, float]()
    for number, kind in enumerate(topology.kinds):
        faster = np.where(topology.kind == number, factor, 1.0) * topology.bandwidth_bytes_per_s
        result[kind] = equal_rate(load, faster) / now
    return result


def full_links(topology: Topology, load: np.ndarray) -> np.ndarray:
    """Links that are used to the full when the group runs at its best rate."""
    used = load * equal_rate(load, topology.bandwidth_bytes_per_s) / topology.bandwidth_bytes_per_s
    return np.flatnonzero(used >= FULL)


def limit(topology: Topology, load: np.ndarray) -> str:
    """Sentence on the cables that limit this job, their dual prices and the most useful upgrade."""
    rate, full = equal_rate(load, topology.bandwidth_bytes_per_s), full_links(topology, load)
    if not len(full):
        return "no link of the topology carries this traffic"
    price = best_rates(load[:, None], topology.bandwidth_bytes_per_s).price
    worth = dict.fromkeys(topology.kinds, 0.0)
    for edge in np.flatnonzero(price):
        worth[topology.kinds[topology.kind[edge]]] += price[edge] * topology.bandwidth_bytes_per_s[edge] / rate
    shown = ", ".join(_full_of_kind(topology, full[topology.kind[full] == k]) for k in np.unique(topology.kind[full]))
    best = max(gains(topology, load).items(), key=lambda item: item[1])
    advice = (
        f"twice the {best[0]} gives {best[1]:.2f} x" if best[1] > 1 + 1e-9 else "no kind alone would help: in series"
    )
    dual = ", ".join(f"{kind} {share:.0%}" for kind, share in worth.items() if share > 1e-9)
    return f"{rate / 1e9:.4g} GB/s, held by {shown}; dual price on {dual}; {advice}"


def _full_of_kind(topology: Topology, full: np.ndarray) -> str:
    """Links of one kind in words, those of both directions counted once."""
    ends = {frozenset((int(topology.source[edge]), int(topology.target[edge]))) for edge in full}
    kind = topology.kinds[topology.kind[full[0]]]
    return f"{len(ends)} full {kind} {'links' if len(ends) > 1 else 'link'} (such as {topology.edge(int(full[0]))})"
