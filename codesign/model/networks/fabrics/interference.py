"""Traffic inside a node and traffic between nodes through one switch and one network card: what is carried, how late.

A node joins `accelerators` by a switch; the network card is one more port of it. Every accelerator offers a share
`load` of its link's rate, of which the share `beyond` leaves the node. Messages of both kinds stand in one queue at the
accelerator, so a full card holds up the traffic that never meant to leave.

Waits are those of M/D/1 queues, q(u, s) = u s / (2 (1 - u)); `s` is the time of one message on the link concerned.
"""

from typing import NamedTuple

from jaxtyping import Array, Float

from ....core.fields import Module, as_leaf, quantity
from ....core.jax_typed import asarray
from ....core.smooth import maximum
from .contended import slowdown

__all__ = [
    "CoupledNode", "RealLifeFatTree", "Throughput", "card_wait_s", "carried_load", "destination_s",
    "equal_switch_tree", "flow_completion_s", "head_of_line_ratio", "intra_latency_s", "inverse_limits",
    "inverse_saturation", "network_s", "port_wait_s", "saturation_load", "throughput", "wait_s",
]  # fmt: skip

MEMORY_RATIO = 0.65
"""Share of the accelerators' own spacing that still shows in the queue of a destination (a source that has just sent
to it cannot do so again within one message's time)."""


class CoupledNode(Module):
    """Accelerators, a network card, and the switch between them.

    Assumes: Poisson messages of one size, destinations uniform inside the node and over all other nodes; packets first
    come first served; the card assembles a message before it sends it, and hands it on once it is whole.
    `MEMORY_RATIO` was fitted on the package's own packet simulation (`experiments/intranode_interference`); everything
    else is derived. Saturation is log-convex in every rate, latencies are below it.
    Source: [pcie_interference] section 4.2; head-of-line limit 2 - sqrt(2) without buffers: [karol1987].
    """

    accelerators: Float[Array, "*b"] = quantity(low=2.0)
    link_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0, doc="of one accelerator, per direction")
    nic_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0, doc="of the node's card on the wire, headers included")
    port_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0, doc="between switch and card, per direction")
    message_bytes: Float[Array, "*b"] = quantity(low=1.0, default=4096.0)
    packet_bytes: Float[Array, "*b"] = quantity(low=1.0, default=128.0, doc="payload of a packet inside the node")
    packet_overhead_ratio: Float[Array, "*b"] = quantity(default=0.0, doc="header bytes per payload byte inside")
    nic_header_bytes: Float[Array, "*b"] = quantity(default=64.0, doc="a message on the wire")
    buffer_messages: Float[Array, "*b"] = quantity(low=1.0, default=8.0, doc="room in front of each output of a switch")

    def on_link_s(self) -> Array:
        """One message on an accelerator's link."""
        return self.message_bytes * (1 + self.packet_overhead_ratio) / self.link_bytes_per_s

    def on_port_s(self) -> Array:
        """One message between switch and card."""
        return self.message_bytes * (1 + self.packet_overhead_ratio) / self.port_bytes_per_s

    def on_wire_s(self) -> Array:
        """One message on the card's link to the network."""
        return (self.message_bytes + self.nic_header_bytes) / self.nic_bytes_per_s

    def messages_per_s(self, load: Array, beyond: Array) -> Array:
        """Messages that leave the node."""
        return self.accelerators * beyond * load * self.link_bytes_per_s / self.message_bytes


class RealLifeFatTree(Module):
    """Two stages of equal switches at full bisection: `nodes / leaf_nodes` leaves, `leaf_nodes` spines.

    Routes follow the destination (D-mod-K), so a link from spine to leaf carries the traffic of one node alone.
    """

    nodes: Float[Array, "*b"] = quantity(low=2.0)
    leaf_nodes: Float[Array, "*b"] = quantity(low=1.0)
    hop_latency_s: Float[Array, "*b"] = quantity(default=6e-9, doc="first flit through one switch or cable")

    def switches(self) -> Array:
        """Leaves and spines."""
        return self.nodes / self.leaf_nodes + self.leaf_nodes

    def crossing_ratio(self) -> Array:
        """Share of the messages between nodes that pass a spine."""
        return (self.nodes - self.leaf_nodes) / (self.nodes - 1)


def equal_switch_tree(nodes: float, hop_latency_s: float = 6e-9) -> RealLifeFatTree:
    """The tree of switches of one size k: nodes = k^2 / 2, hence k/2 nodes on a leaf."""
    return RealLifeFatTree(as_leaf(nodes), as_leaf((nodes / 2) ** 0.5), as_leaf(hop_latency_s))


class Throughput(NamedTuple):
    """Payload bytes per second that one node moves."""

    inside: Array
    beyond: Array


def head_of_line_ratio(buffer_messages: Array) -> Array:
    """Share of its rate that a queue of mixed destinations reaches: 1 - (sqrt(2) - 1) / (1 + b/4)."""
    return 1 - 0.41421356 / (1 + buffer_messages / 4)


def inverse_limits(node: CoupledNode, beyond: Array) -> dict[str, Array]:
    """1 / rho_i of each limit on the load: card, its port, the accelerators' queues; 0 where a limit is absent."""
    leaving = node.messages_per_s(asarray(1.0), beyond)
    return {
        "nic": leaving * node.on_wire_s(),
        "port": leaving * node.on_port_s(),
        "head_of_line": (1 + node.packet_overhead_ratio) / head_of_line_ratio(node.buffer_messages),
    }


def inverse_saturation(node: CoupledNode, beyond: Array) -> Array:
    """1 / rho* = max 1 / rho_i: the tightest limit alone decides."""
    limits = inverse_limits(node, beyond)
    return maximum(limits["head_of_line"], limits["nic"], limits["port"])


def saturation_load(node: CoupledNode, beyond: Array) -> Array:
    """The offered load from which on no more is carried, as a share of the accelerators' links."""
    return 1 / inverse_saturation(node, beyond)


def carried_load(node: CoupledNode, load: Array, beyond: Array) -> Array:
    """min(load, rho*)."""
    return 1 / maximum(1 / load, inverse_saturation(node, beyond))


def throughput(node: CoupledNode, load: Array, beyond: Array) -> Throughput:
    """Throughput of a node inside and beyond at an offered load. Past the card's limit C: inside = C (1 - p) / p."""
    total = node.accelerators * node.link_bytes_per_s * carried_load(node, load, beyond)
    return Throughput((1 - beyond) * total, beyond * total)


def wait_s(used: Array, service_s: Array) -> Array:
    """Mean wait of an M/D/1 queue, u s / (2 (1 - u)); finite, rising and log-convex for every u (`slowdown`)."""
    return 0.5 * used * service_s * slowdown(used)


def _injection_wait_s(node: CoupledNode, load: Array) -> Array:
    return wait_s(load * (1 + node.packet_overhead_ratio), node.on_link_s())


def intra_latency_s(node: CoupledNode, load: Array, beyond: Array) -> Array:
    """Mean time of a message inside the node, from its generation to its last packet: q + S + W + t.

    W is the wait at the destination's link. While a message arrives (S), others that overlap it bring (1 - c) u S / 2
    more than leaves, on top of what it finds, q (1 - 0.65 c); c = (1-p)^2 / (A-1) is the chance that two
    messages for one destination come from one source, which spaces them out. t is one packet's time.
    """
    used, service = load * (1 + node.packet_overhead_ratio), node.on_link_s()
    same = (1 - beyond) ** 2 / (node.accelerators - 1)
    result = wait_s(used, service)
    gained = 0.5 * (1 - same) * used * service
    packet = service * node.packet_bytes / node.message_bytes
    return _injection_wait_s(node, load) + service + result * (1 - MEMORY_RATIO * same) + gained + packet


def flow_completion_s(node: CoupledNode, tree: RealLifeFatTree, load: Array, beyond: Array) -> Array:
    """Mean time of a message between nodes, from its generation to its last packet at the destination.

    Stage by stage: own link and port (pipelined packets), the card, the network's first flit, the card at the other
    end, its port and the destination's link.
    """
    alone_s = _injection_wait_s(node, load) + maximum(node.on_link_s(), node.on_port_s())
    packet = (node.on_link_s() + node.on_port_s()) * node.packet_bytes / node.message_bytes
    up = port_wait_s(node, load, beyond) + network_s(node, tree, load, beyond)
    return alone_s + packet + up + destination_s(node, load, beyond)


def port_wait_s(node: CoupledNode, load: Array, beyond: Array) -> Array:
    """Wait between switch and card for messages that arrive spread over S: a (q + a u Sp / 2), a = Sp / max(S, Sp)."""
    service = node.on_port_s()
    used = node.messages_per_s(load, beyond) * service
    burst = service / maximum(node.on_link_s(), service)
    return burst * (wait_s(used, service) + 0.5 * burst * used * service)


def card_wait_s(node: CoupledNode, load: Array, beyond: Array) -> Array:
    """Wait in front of the card for messages that the accelerators' links have spaced out already.

        max(q(u_n, Sn) - q(p rho, S), (1 - 1/A) q(u_n, Sn))

    A link and a card in a row wait together like the slower of them alone, so what the link has made its own messages
    wait for one another does not come again; a message of a link slower than the card only meets those of the others.
    """
    service = node.on_wire_s()
    alone = wait_s(node.messages_per_s(load, beyond) * service, service)
    spaced = wait_s(beyond * load * (1 + node.packet_overhead_ratio), node.on_link_s())
    return maximum(alone - spaced, (1 - 1 / node.accelerators) * alone)


def network_s(node: CoupledNode, tree: RealLifeFatTree, load: Array, beyond: Array) -> Array:
    """From one card to the other: queue of the card, Sn, hops, an uplink shared by a leaf, the tree to the destination.

    The links that lead to one destination are equal, and a chain of equal servers waits like its last: q(u_n, Sn), of
    which a message's own card has no part, 1 / (N - 1) (what one card sent stays apart); or the receiving port's wait
    where that is longer.
    """
    service, port = node.on_wire_s(), node.on_port_s()
    rate, crossing = node.messages_per_s(load, beyond), tree.crossing_ratio()
    uplink = crossing * (1 - 1 / tree.leaf_nodes) * wait_s(crossing * rate * service, service)
    others = 1 - 1 / (tree.nodes - 1)
    towards = maximum(others * wait_s(rate * service, service), wait_s(rate * port, port))
    hops = tree.hop_latency_s * (2 + 2 * crossing)
    return card_wait_s(node, load, beyond) + service + hops + uplink + towards


def destination_s(node: CoupledNode, load: Array, beyond: Array) -> Array:
    """From the receiving card to the last packet: the message comes over Sp into a link that others feed over S.

    What it finds is the M/D/1 workload less what is still on its way, q + u (Sp - ((1-p) S + p Sp) / 2), of which the
    share p comes from the card as well: apart by max(Sn, Sp), so that what is left of S is in the way, no more.
    """
    used, service, port = load * (1 + node.packet_overhead_ratio), node.on_link_s(), node.on_port_s()
    still_coming = 0.5 * ((1 - beyond) * service + beyond * port)
    apart = maximum(node.on_wire_s(), port) / service
    in_the_way = 1 - beyond + beyond * maximum(1 - apart, 0.0)
    return maximum(service, port) + (wait_s(used, service) + used * (port - still_coming)) * in_the_way
