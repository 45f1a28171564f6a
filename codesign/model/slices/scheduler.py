"""Tenants come and go: a simulation of any rack that allocates and releases."""

import heapq
from dataclasses import dataclass

import numpy as np

from .allocators import AbstractAllocator, Handle
from .demand import DemandMix


@dataclass(frozen=True)
class SchedulerOutcome:
    """Outcome of a simulation of tenants.

    acceptance: of the accelerators asked for, the share granted (counting requests would reward refusing large ones);
    requests: share of requests granted; utilisation: share of the rack that tenants asked for and hold, over time;
    fragmented: share of requests refused although enough accelerators were free; stranded: mean of 1 - largest
    request that could be placed / free accelerators, over moments with any free.
    """

    acceptance: float
    requests: float
    utilisation: float
    fragmented: float
    stranded: float


def simulate(
    rack: AbstractAllocator,
    mix: DemandMix,
    load: float = 0.8,
    arrivals: int = 20_000,
    seed: int = 0,
    look_every: int = 20,
) -> SchedulerOutcome:
    """Poisson arrivals, exponential holding times of mean 1, refused requests are lost.

    Args:
        rack: empty at the start.
        mix: sizes asked for.
        load: offered accelerators over those there are.
        arrivals: counted, after a tenth as many that are not.
        seed: of the arrivals; equal seeds give every rack the same tenants.
        look_every: requests between two looks at what could be placed.
    """
    random = np.random.default_rng(seed)
    warm_up = arrivals // 10
    count = arrivals + warm_up
    gaps = random.exponential(mix.mean / (load * rack.capacity), count).tolist()
    sizes = random.choice(np.array(mix.sizes), count, p=mix.shares).tolist()
    holding = random.exponential(1.0, count).tolist()
    now = begun = in_use = integral = 0.0
    asked = granted = accepted = fragmented = 0
    stranded: list[float] = []
    leaving: list[tuple[float, int, int, Handle]] = []

    def until(moment: float) -> None:
        nonlocal now, in_use, integral
        while leaving and leaving[0][0] <= moment:
            end, _, size, handle = heapq.heappop(leaving)
            integral += in_use * (end - now)
            now, in_use = end, in_use - size
            rack.release(handle)
        integral += in_use * (moment - now)
        now = moment

    for index in range(count):
        until(now + gaps[index])
        if index == warm_up:
            begun, integral = now, 0.0
        size, counted = sizes[index], index >= warm_up
        if counted and index % look_every == 0 and rack.free:
            stranded.append(1 - rack.largest() / rack.free)
        enough = rack.free >= size
        handle = rack.allocate(size)
        if handle is not None:
            in_use += size
            heapq.heappush(leaving, (now + holding[index], index, size, handle))
        if counted:
            asked += size
            granted += size * (handle is not None)
            accepted += handle is not None
            fragmented += enough and handle is None
    over = (now - begun) * rack.capacity
    looks = float(np.mean(stranded)) if stranded else 0.0
    return SchedulerOutcome(granted / asked, accepted / arrivals, integral / over, fragmented / arrivals, looks)
