"""Write `simulated.csv`: every run of the packet simulations that the claims of this experiment are held against.

`python experiments/intranode_interference/simulate.py` takes about ten minutes on one core; seeds are fixed, so the
same rows come back.
"""

import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # what experiments share
from _lib.events import simulate_events
from _lib.node_network import NodeNetwork
from _lib.queues import simulate_queues

HERE = Path(__file__).parent
PATTERNS = {"C1": 0.20, "C2": 0.15, "C3": 0.10, "C4": 0.05, "C5": 0.0}
LINKS = (16e9, 32e9, 64e9)  # 128, 256 and 512 GB/s for 8 accelerators
SHARES_OF_SATURATION = (0.25, 0.5, 0.75, 0.9)
KEPT = (
    "nodes", "accelerators", "leaf_nodes", "link_bytes_per_s", "nic_bytes_per_s", "port_bytes_per_s", "buffer_messages",
)  # fmt: skip


def network(link: float, *, nodes: int = 32, accelerators: int = 8, **changes: Any) -> NodeNetwork:
    """The document's node and tree; the port to the card is as wide as all links, because its rate is not printed."""
    leaf = {8: 2, 32: 4, 128: 8}[nodes]
    return replace(NodeNetwork(nodes, accelerators, leaf, link, port_bytes_per_s=accelerators * link), **changes)


def unbuffered_saturation(net: NodeNetwork, beyond: float) -> float:
    """The load that fills a link, the card or its port, with unlimited buffers."""
    leaving = net.accelerators * beyond * net.link_bytes_per_s
    wire = net.nic_bytes_per_s * net.message_bytes / (net.message_bytes + net.nic_header_bytes)
    return 1.0 if not leaving else min(1.0, wire / leaving, net.port_bytes_per_s / leaving)


def below_saturation(
    purpose: str,
    net: NodeNetwork,
    beyond: float,
    span: float,
    shares: tuple[float, ...] = SHARES_OF_SATURATION,
    **labels: Any,
) -> Iterator[dict]:
    """Latencies with unlimited buffers at shares of the saturation load; `span` messages long."""
    for share in shares:
        load = share * unbuffered_saturation(net, beyond)
        duration = span * net.message_bytes / net.link_bytes_per_s
        result = simulate_queues(net, load, beyond, duration, 0.25 * duration, seed=1)
        yield row(purpose, "queues", net, beyond, load, duration, result) | labels


def at_saturation(purpose: str, net: NodeNetwork, beyond: float, span: float, **labels: Any) -> Iterator[dict]:
    """Throughput with finite buffers while everything is offered at full rate."""
    duration = span * net.message_bytes / net.link_bytes_per_s
    result = simulate_events(net, 1.0, beyond, duration, 0.4 * duration, seed=2)
    yield row(purpose, "events", net, beyond, 1.0, duration, result) | labels


def row(purpose: str, method: str, net: NodeNetwork, beyond: float, load: float, duration: float, found: Any) -> dict:
    """One line of the table."""
    kept = {name: value for name, value in asdict(net).items() if name in KEPT}
    outcome = {name: value for name, value in asdict(found).items() if name != "details"}
    return (
        {"purpose": purpose, "method": method}
        | kept
        | {"beyond": beyond, "load": load, "duration_s": duration}
        | outcome
    )


def runs() -> Iterator[dict]:
    """The document's cases, then what the constants were not fitted on."""
    for link in LINKS:
        for pattern, beyond in PATTERNS.items():
            yield from at_saturation("document", network(link), beyond, 300, pattern=pattern)
            yield from below_saturation("document", network(link), beyond, 1500, pattern=pattern)
            if pattern in ("C1", "C3", "C5"):  # shorter, so not as near to saturation
                large = network(link, nodes=128)
                yield from below_saturation("128 nodes", large, beyond, 400, (0.25, 0.5, 0.75), pattern=pattern)
    for link in (16e9, 64e9):
        for beyond in (0.2, 0.05):
            for accelerators in (4, 16):
                net = network(link, nodes=8, accelerators=accelerators)
                yield from below_saturation(f"{accelerators} accelerators", net, beyond, 6000)
                yield from at_saturation(f"{accelerators} accelerators", net, beyond, 400)
            net = network(link, nodes=8, port_bytes_per_s=64e9)
            yield from below_saturation("port 64 GB/s", net, beyond, 6000)
            yield from at_saturation("port 64 GB/s", net, beyond, 400)
            for buffers in (2, 32):
                net = network(link, nodes=8, buffer_messages=buffers)
                yield from at_saturation(f"buffers of {buffers} messages", net, beyond, 400)


if __name__ == "__main__":
    lines = []
    for line in runs():
        lines.append(line)
        print(len(lines), line["purpose"], line["method"], f"{line['load']:.3f}", flush=True)
    pd.DataFrame(lines).to_csv(HERE / "simulated.csv", index=False, float_format="%.6g", lineterminator="\n")
