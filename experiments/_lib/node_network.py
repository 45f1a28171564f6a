"""What is simulated: nodes of accelerators behind one network card each, joined by a two-stage fat tree."""

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from codesign.core import ConfigError

MAY_BE_ZERO = ("packet_overhead_ratio", "nic_header_bytes", "hop_latency_s")


@dataclass(frozen=True)
class NodeNetwork:
    """Rates in bytes per second, times in seconds; buffers in messages, in front of each output.

    `buffer_messages` stands before the links inside a node, `card_messages` in each card (both directions),
    `tree_messages` before the links of the tree. A card must hold one message of every accelerator, because it
    assembles them side by side.
    """

    nodes: int = 32
    accelerators: int = 8
    leaf_nodes: int = 4
    link_bytes_per_s: float = 64e9
    nic_bytes_per_s: float = 50e9
    port_bytes_per_s: float = 512e9
    message_bytes: int = 4096
    packet_bytes: int = 128
    packet_overhead_ratio: float = 0.0
    nic_header_bytes: float = 64.0
    hop_latency_s: float = 6e-9
    buffer_messages: int = 8
    card_messages: int = 16
    tree_messages: int = 16

    def __post_init__(self) -> None:
        """Whole packets, whole leaves, cards without deadlock.

        Raises:
            ConfigError: naming what does not divide or does not fit.
        """
        for entry in fields(self):
            low = 0 if entry.name in MAY_BE_ZERO else 1
            if not getattr(self, entry.name) >= low:
                raise ConfigError(f"{entry.name} = {getattr(self, entry.name)} must be at least {low}")
        if self.nodes < 2 or self.accelerators < 2:
            raise ConfigError(f"{self.nodes} nodes of {self.accelerators} accelerators: at least 2 of each")
        for whole, part in (("nodes", "leaf_nodes"), ("message_bytes", "packet_bytes")):
            if getattr(self, whole) % getattr(self, part):
                raise ConfigError(f"{whole} = {getattr(self, whole)} is no multiple of {part} = {getattr(self, part)}")
        if self.card_messages < self.accelerators:
            raise ConfigError(
                f"card_messages = {self.card_messages} must be at least accelerators = {self.accelerators}"
            )

    @property
    def packets(self) -> int:
        """Packets of a message inside a node."""
        return self.message_bytes // self.packet_bytes

    @property
    def link_packet_s(self) -> float:
        """One packet on an accelerator's link."""
        return self.packet_bytes * (1 + self.packet_overhead_ratio) / self.link_bytes_per_s

    @property
    def port_packet_s(self) -> float:
        """One packet between switch and card."""
        return self.packet_bytes * (1 + self.packet_overhead_ratio) / self.port_bytes_per_s

    @property
    def wire_s(self) -> float:
        """One message on a link of the tree."""
        return (self.message_bytes + self.nic_header_bytes) / self.nic_bytes_per_s


@dataclass(frozen=True)
class Messages:
    """Offered messages, sorted by source and time: when, from and to which accelerator (numbered over all nodes)."""

    born_s: np.ndarray
    source: np.ndarray
    target: np.ndarray
    leaves: np.ndarray


def draw(network: NodeNetwork, load: float, beyond: float, duration_s: float, seed: int) -> Messages:
    """Poisson messages at `load` of each link's payload rate; a share `beyond` goes to another node.

    Raises:
        ConfigError: a load or share that is none.
    """
    if not load > 0 or not 0 <= beyond <= 1 or not duration_s > 0:
        raise ConfigError(f"load = {load}, beyond = {beyond}, duration_s = {duration_s}: no such traffic")
    rng, size = np.random.default_rng(seed), network.accelerators
    count = rng.poisson(load * network.link_bytes_per_s / network.message_bytes * duration_s, network.nodes * size)
    source = np.repeat(np.arange(len(count)), count)
    born = rng.uniform(0, duration_s, len(source))
    born = born[np.lexsort((born, source))]
    leaves = rng.random(len(source)) < beyond
    node = source // size
    neighbour = rng.integers(0, size - 1, len(source))
    neighbour += neighbour >= source % size
    elsewhere = rng.integers(0, network.nodes - 1, len(source))
    elsewhere += elsewhere >= node
    target = np.where(leaves, elsewhere * size + rng.integers(0, size, len(source)), node * size + neighbour)
    return Messages(born, source, target, leaves)


@dataclass(frozen=True)
class NetworkOutcome:
    """Means over the measured window: bytes per second of one node, seconds of a message; nan where there was none."""

    carried_load: float
    inside_bytes_per_s: float
    beyond_bytes_per_s: float
    intra_latency_s: float
    flow_completion_s: float
    messages: int
    details: dict[str, Any] = field(default_factory=dict[str, Any])


def measured(
    network: NodeNetwork, messages: Messages, done_s: np.ndarray, window: tuple[float, float], **details: Any
) -> NetworkOutcome:
    """Throughput of what arrives in the window, latency of what is born in it (and arrives at all)."""
    first, last = window
    arrived = (done_s > first) & (done_s <= last)
    born = (messages.born_s > first) & (messages.born_s <= last) & np.isfinite(done_s)
    took = done_s - messages.born_s
    rate = network.message_bytes / (last - first) / network.nodes

    def mean(chosen: np.ndarray) -> float:
        return float(took[chosen].mean()) if chosen.any() else float("nan")

    inside, beyond = (float((arrived & kind).sum()) * rate for kind in (~messages.leaves, messages.leaves))
    capacity = network.accelerators * network.link_bytes_per_s
    return NetworkOutcome(
        (inside + beyond) / capacity, inside, beyond,
        mean(born & ~messages.leaves), mean(born & messages.leaves), int(born.sum()), details,
    )  # fmt: skip
