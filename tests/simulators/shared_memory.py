"""Collectives over memory that all address, piece by piece: links, flags and sums of whole numbers, no closed form."""

import random
from dataclasses import dataclass, field
from itertools import product

__all__ = ["Appliance", "carry_out"]


@dataclass
class Appliance:
    """Members at ports of a memory: rates in bytes per second and direction, seconds of a way there or back."""

    members: int = 4
    port_bytes_per_s: float = 9e11
    way_s: float = 2.5e-7
    memory_bytes_per_s: float = float("inf")
    busy_until: dict[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])

    def over(self, link: tuple[str, int], ready_s: float, nbytes: float) -> float:
        """When a transfer's last byte has passed a link that serves first come first served."""
        begun = max(ready_s, self.busy_until.get(link, 0.0))
        self.busy_until[link] = begun + nbytes / self.port_bytes_per_s
        return self.busy_until[link]

    def write(self, member: int, ready_s: float, nbytes: float) -> float:
        """When others may read it: data there, acknowledged, then the flag there."""
        return self.over(("up", member), ready_s, nbytes) + 3 * self.way_s

    def read(self, member: int, flagged_s: float, nbytes: float) -> float:
        """When it is at the member: the flag's way back, the request there, the data back."""
        return self.over(("down", member), flagged_s + 3 * self.way_s, nbytes)


def carry_out(operation: str, nbytes: float, piece_bytes: float, appliance: Appliance, seed: int = 0) -> float:
    """Seconds until the last member has everything; checks what each one has.

    Every piece of the buffer has a slot for each member and each member's part. What is written next waits for no
    reading, as ports are full duplex; reads are issued piece by piece.
    """
    n, rng = appliance.members, random.Random(seed)
    pieces = (
        max(1, round(nbytes / piece_bytes)) if operation != "all_gather" else max(1, round(nbytes / n / piece_bytes))
    )
    size = nbytes / pieces
    everyone = range(n)
    values = {key: rng.randrange(1 << 30) for key in product(everyone, range(pieces), everyone)}  # owner, piece, part
    done, seen = 0.0, dict[tuple[int, int, int], int]()
    sums: dict[tuple[int, int], int] = {}
    reading: list[tuple[float, int, int]] = []
    for piece in range(pieces):  # everybody writes ahead
        sent = size / n if operation == "all_gather" else size * (n - 1) / n
        flagged = max(appliance.write(member, 0.0, sent) for member in everyone)
        reading.append((flagged, piece, 0))
    second: list[tuple[float, int, int]] = []
    for flagged, piece, _ in reading:
        for member in everyone:
            at = appliance.read(member, flagged, size * (n - 1) / n)
            if operation == "all_gather":
                seen.update({(member, piece, owner): values[owner, piece, 0] for owner in everyone})
            elif operation == "all_to_all":
                seen.update({(member, piece, owner): values[owner, piece, member] for owner in everyone})
            else:
                sums[piece, member] = sum(values[owner, piece, member] for owner in everyone)
            done = max(done, at)
            if operation == "all_reduce":
                second.append((at, piece, member))
    if operation == "all_reduce":
        for piece in range(pieces):
            times = [appliance.write(member, at, size / n) for at, index, member in second if index == piece]
            for member in everyone:
                done = max(done, appliance.read(member, max(times), size * (n - 1) / n))
                seen.update({(member, piece, part): sums[piece, part] for part in everyone})

    def expected(part: int, piece: int, owner: int) -> int:
        if operation == "all_gather":
            return values[owner, piece, 0]
        if operation == "all_to_all":
            return values[owner, piece, part]
        return sum(values[each, piece, owner] for each in everyone)

    if operation in ("all_gather", "all_to_all", "all_reduce"):
        assert all(seen[key] == expected(*key) for key in product(everyone, range(pieces), everyone))
    else:
        assert all(
            sums[p, m] == sum(values[owner, p, m] for owner in everyone) for p in range(pieces) for m in everyone
        )
    return done
