"""Every packet through finite buffers: an event simulation with virtual cut-through and credits.

A link sends the head of its queue only when the next buffer has room; room is reserved when the sending starts (a
credit) and given back when the packet has left. Who finds no room waits, and holds up whatever stands behind it. Inside
a node the unit is a packet; a card assembles messages, the tree switches whole messages by virtual cut-through: their
first flit is one hop ahead of the tail. Up-and-down routes have no cycles, so nothing can wait for itself.
"""

import heapq
from collections import deque
from typing import no_type_check

import numpy as np

from .node_network import Messages, NetworkOutcome, NodeNetwork, draw, measured

LEFT, HEAD = 0, 1  # a packet or message has left a link; the first flit of a message has reached the next one


def simulate_events(
    network: NodeNetwork,
    load: float,
    beyond: float,
    duration_s: float,
    warm_up_s: float = 0.0,
    seed: int = 0,
) -> NetworkOutcome:
    """Send Poisson traffic through finite buffers; arguments as `simulate_queues`, buffers obeyed."""
    messages = draw(network, load, beyond, duration_s, seed)
    run = _Run(network, messages)
    run.until(duration_s)
    return measured(network, messages, run.done, (warm_up_s, 0.95 * duration_s), events=run.events)


class Links:
    """Numbers of the links by kind, with the time of one unit and the room in front of each."""

    def __init__(self, network: NodeNetwork) -> None:
        nodes, devices = network.nodes, network.nodes * network.accelerators
        leaves, size = nodes // network.leaf_nodes, network.leaf_nodes
        inside, card = network.buffer_messages * network.packets, network.card_messages
        kinds = (  # in the order of a path; room is counted in the link's own unit
            ("own", devices, network.link_packet_s, 0),
            ("delivery", devices, network.link_packet_s, inside),
            ("port_up", nodes, network.port_packet_s, inside),
            ("card", nodes, network.wire_s, card),
            ("leaf_up", leaves * size, network.wire_s, network.tree_messages),
            ("spine_down", size * leaves, network.wire_s, network.tree_messages),
            ("leaf_down", nodes, network.wire_s, network.tree_messages),
            ("port_down", nodes, network.port_packet_s, card),
        )
        self.first: dict[str, int] = {}
        self.service: list[float] = []
        self.room: list[int] = []
        for name, count, service, room in kinds:
            self.first[name] = len(self.service)
            self.service += [service] * count
            self.room += [room] * count
        self.network, self.leaves = network, leaves

    def route(self, source: int, target: int) -> tuple[int, ...]:
        """Links from an accelerator to another, its own first."""
        network, first = self.network, self.first
        here, there = source // network.accelerators, target // network.accelerators
        delivery = first["delivery"] + target
        if here == there:
            return (source, delivery)
        size = network.leaf_nodes
        leaf, other, spine = here // size, there // size, there % size
        middle = (first["leaf_up"] + leaf * size + spine, first["spine_down"] + spine * self.leaves + other)
        up, down = (first["port_up"] + here, first["card"] + here), (first["leaf_down"] + there,)
        return (source, *up, *(() if leaf == other else middle), *down, first["port_down"] + there, delivery)


@no_type_check  # a checker at run time would cost more than the simulation: millions of small calls
class _Run:
    """State of one simulation. A queue holds (message, place on its route of the link after this one)."""

    def __init__(self, network: NodeNetwork, messages: Messages) -> None:
        links = Links(network)
        self.service, self.room, self.first = links.service, links.room, links.first
        pairs = zip(messages.source.tolist(), messages.target.tolist(), strict=True)
        self.route = [links.route(source, target) for source, target in pairs]
        self.packets, self.hop_s = network.packets, network.hop_latency_s
        count = len(self.service)
        self.queue: list[deque[tuple[int, int]]] = [deque() for _ in range(count)]
        self.blocked: list[deque[int]] = [deque() for _ in range(count)]
        self.busy = [False] * count
        self.sent = [0] * count  # packets of the head message that a splitting link has sent
        self.assembled = [0] * len(self.route)  # packets that have reached the card
        self.granted = [False] * len(self.route)  # the card has room for this message
        self.missing = [self.packets] * len(self.route)
        self.done = np.full(len(self.route), np.nan)
        self.heap: list[tuple[float, int, int, int, int]] = []
        self.count = self.events = 0
        order = np.argsort(messages.born_s, kind="stable")
        self.births: list[tuple[float, int]] = list(zip(messages.born_s[order].tolist(), order.tolist(), strict=True))

    def until(self, end_s: float) -> None:
        """Process births and events in the order of time."""
        heap, births, born = self.heap, self.births, 0
        while heap or born < len(births):
            if born < len(births) and (not heap or births[born][0] < heap[0][0]):
                now, message = births[born]
                born += 1
                self._arrive(self.route[message][0], message, 1, now)
                continue
            now, _, what, link, message = heapq.heappop(heap)
            if now > end_s:
                return
            self.events += 1
            if what == HEAD:
                place = self.route[message].index(link) + 1
                self._arrive(self.route[message][place], message, place + 1, now)
            else:
                self._leave(link, now)

    def _arrive(self, link: int, message: int, place: int, now: float) -> None:
        self.queue[link].append((message, place))
        if not self.busy[link]:
            self._begin(link, now)

    def _begin(self, link: int, now: float) -> None:
        """Send the head of a queue, or wait for room in front of the next link."""
        message, place = self.queue[link][0]
        route = self.route[message]
        self.busy[link] = True
        if place < len(route) and not self._reserve(route[place], message, link):
            self.blocked[route[place]].append(link)
            return
        service, first = self.service[link], self.first
        self.count += 1
        heapq.heappush(self.heap, (now + service, self.count, LEFT, link, message))
        if first["card"] <= link < first["port_down"]:
            ahead = self.hop_s if route[place] < first["port_down"] else self.hop_s + service  # cards wait for the tail
            self.count += 1
            heapq.heappush(self.heap, (now + ahead, self.count, HEAD, link, message))

    def _reserve(self, link: int, message: int, sender: int) -> bool:
        """Take a place in front of a link; a card gives one to a whole message, with its first packet."""
        assembling = self.first["port_up"] <= sender < self.first["card"]
        if assembling and self.granted[message]:
            return True
        if not self.room[link]:
            return False
        self.room[link] -= 1
        self.granted[message] = assembling or self.granted[message]
        return True

    def _release(self, link: int, now: float) -> None:
        """Give a place back, to whoever waits longest."""
        self.room[link] += 1
        if self.blocked[link]:
            self._begin(self.blocked[link].popleft(), now)

    def _leave(self, link: int, now: float) -> None:
        """A unit has left a link: hand it on, free its place, send the next."""
        first, queue = self.first, self.queue[link]
        self.busy[link] = False
        if link < first["delivery"] or link >= first["port_down"]:
            self._packet_of_a_message(link, now)
        else:
            message, place = queue.popleft()
            if link < first["port_up"]:
                self.missing[message] -= 1
                if not self.missing[message]:
                    self.done[message] = now
            elif link < first["card"]:
                self.assembled[message] += 1
                if self.assembled[message] == self.packets:
                    self._arrive(self.route[message][place], message, place + 1, now)
            self._release(link, now)
        if queue and not self.busy[link]:
            self._begin(link, now)

    def _packet_of_a_message(self, link: int, now: float) -> None:
        """A link that splits messages has sent one packet of its head message."""
        message, place = self.queue[link][0]
        self.sent[link] += 1
        if self.sent[link] == self.packets:
            self.sent[link] = 0
            self.queue[link].popleft()
            if link >= self.first["port_down"]:
                self._release(link, now)
        self._arrive(self.route[message][place], message, place + 1, now)
