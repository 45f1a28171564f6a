"""Every packet through unlimited buffers, exactly: Lindley's recursion for one link after another.

Without backpressure the network is feed-forward: own link -> port -> card -> leaf -> spine -> leaf -> card -> port ->
destination's link. A first-come-first-served link of constant service time s starts packet i at

    max(arrival_i, start_{i-1} + s) = s i + max_{j <= i} (arrival_j - s j),

a running maximum, so millions of packets take seconds.
"""

import numpy as np

from .node_network import Messages, NetworkOutcome, NodeNetwork, draw, measured


def service_starts(link: np.ndarray, arrival: np.ndarray, service: float) -> np.ndarray:
    """When each customer's service starts; `link` says at which of many equal servers it queues."""
    if not len(link):
        return np.zeros(0)
    order = np.lexsort((arrival, link))
    link, arrival = link[order], arrival[order]
    index = np.arange(len(link))
    first = np.concatenate([[True], link[1:] != link[:-1]])
    rank = index - np.maximum.accumulate(np.where(first, index, 0))
    apart = (np.cumsum(first) - 1) * 4 * (arrival.max() + len(link) * service)  # servers do not see one another
    starts = np.empty_like(arrival)
    starts[order] = np.maximum.accumulate(arrival - rank * service + apart) - apart + rank * service
    return starts


def simulate_queues(
    network: NodeNetwork,
    load: float,
    beyond: float,
    duration_s: float,
    warm_up_s: float = 0.0,
    seed: int = 0,
) -> NetworkOutcome:
    """Send Poisson traffic through unlimited buffers.

    Args:
        network: what is simulated; its buffers are ignored.
        load: offered share of each accelerator's link.
        beyond: share of the messages that leave their node.
        duration_s: simulated time; its last twentieth is not measured.
        warm_up_s: simulated time before anything is measured.
        seed: of the arrivals.
    """
    messages = draw(network, load, beyond, duration_s, seed)
    done = completions(network, messages)
    return measured(network, messages, done, (warm_up_s, 0.95 * duration_s))


def completions(network: NodeNetwork, messages: Messages) -> np.ndarray:
    """When the last packet of each message has arrived."""
    packets, link_s, port_s = network.packets, network.link_packet_s, network.port_packet_s
    steps = np.arange(1, packets + 1)
    sent = service_starts(messages.source, messages.born_s, packets * link_s)
    stays, leaves = np.flatnonzero(~messages.leaves), np.flatnonzero(messages.leaves)
    at_switch = sent[stays, None] + steps * link_s
    received = cross(network, messages, sent, leaves)
    from_card = received[:, None] + steps * port_s
    target = np.repeat(np.concatenate([messages.target[stays], messages.target[leaves]]), packets)
    starts = service_starts(target, np.concatenate([at_switch.ravel(), from_card.ravel()]), link_s)
    last = starts.reshape(-1, packets).max(axis=1) + link_s
    done = np.empty(len(sent))
    done[stays], done[leaves] = last[: len(stays)], last[len(stays) :]
    return done


def cross(network: NodeNetwork, messages: Messages, sent: np.ndarray, leaves: np.ndarray) -> np.ndarray:
    """From the start of a message on its own link to the start of its delivery by the receiving card."""
    packets, wire, hop = network.packets, network.wire_s, network.hop_latency_s
    source, target = (ends[leaves] // network.accelerators for ends in (messages.source, messages.target))
    arrival = (sent[leaves, None] + np.arange(1, packets + 1) * network.link_packet_s).ravel()
    port = service_starts(np.repeat(source, packets), arrival, network.port_packet_s)
    whole = port.reshape(-1, packets).max(axis=1) + network.port_packet_s
    head = service_starts(source, whole, wire) + hop
    size = network.leaf_nodes
    leaf, other, spine = source // size, target // size, target % size
    far = np.flatnonzero(leaf != other)
    up = service_starts(leaf[far] * size + spine[far], head[far], wire) + hop
    head[far] = service_starts(spine[far] * network.nodes + other[far], up, wire) + hop
    whole = service_starts(target, head, wire) + hop + wire
    return service_starts(target, whole, packets * network.port_packet_s)
