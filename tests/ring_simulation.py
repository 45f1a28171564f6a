"""A ring all-gather packet by packet: every link serves one packet after the other, first come first served.

Knows nothing of loads, shares or programmes; only where each packet goes next.
"""

import heapq

import numpy as np


def all_gather_s(routes, orders: np.ndarray, shard_bytes: float, packets: int) -> float:
    """Seconds until every member holds every shard, `packets` a shard and ring, stored and forwarded at each hop.

    A member passes a packet on as soon as it has arrived whole. Shards are divided equally among the rings.
    """
    topology = routes.topology
    rings, members = orders.shape
    size = shard_bytes / rings / packets
    service = size / topology.bandwidth_bytes_per_s
    paths = [
        [routes.path(a, b) for a, b in zip(order.tolist(), np.roll(order, -1).tolist(), strict=True)]
        for order in orders
    ]
    free, counter, done = np.zeros(len(service)), 0, 0.0
    events: list[tuple[float, int, int, int, int, int]] = []
    for ring in range(rings):
        for rank in range(members):
            for _ in range(packets):
                events.append((0.0, counter, ring, rank, members - 1, 0))
                counter += 1
    heapq.heapify(events)
    while events:
        now, _, ring, rank, steps, hop = heapq.heappop(events)
        path = paths[ring][rank]
        if hop == len(path):  # arrived at the next member, which keeps a copy and passes it on
            done = max(done, now)
            rank, steps, hop = (rank + 1) % members, steps - 1, 0
            if steps == 0:
                continue
            path = paths[ring][rank]
        link = path[hop]
        free[link] = max(free[link], now) + service[link]
        counter += 1
        heapq.heappush(events, (free[link] + topology.latency_s[link], counter, ring, rank, steps, hop + 1))
    return done
