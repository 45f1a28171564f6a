"""Racks as a scheduler sees them: which accelerators can become one slice.

Each keeps what is taken as a bit mask over its accelerators. `allocate` returns a handle or None, `release` takes it
back. A request is rounded up to a volume that the wiring permits.
"""

import abc
import functools
import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...core.errors import ConfigError

MOST, WORD = 4096, 64  # accelerators of the largest torus or cube; bits of a word of its masks


@dataclass(frozen=True)
class SliceHandle:
    """A slice: accelerators as a bit mask, and fibers taken as (server, count)."""

    mask: int
    fibers: tuple[tuple[int, int], ...] = ()


class AbstractAllocator(abc.ABC):
    """A rack of `capacity` accelerators."""

    def __init__(self, capacity: int, fibers: Iterable[int] = ()) -> None:
        """An empty rack, and the fibers that leave each of its servers."""
        self.capacity = capacity
        self.taken = 0
        self.fibers = list(fibers)

    @property
    def free(self) -> int:
        """Accelerators that no slice has."""
        return self.capacity - self.taken.bit_count()

    @abc.abstractmethod
    def volume(self, size: int) -> int | None:
        """Accelerators that a request of this size takes; None where it can never be placed."""

    @abc.abstractmethod
    def find(self, size: int) -> SliceHandle | None:
        """A place for a slice as the rack is now, without taking it."""

    def allocate(self, size: int) -> SliceHandle | None:
        """Take a slice."""
        handle = self.find(size)
        if handle is not None:
            self.taken |= handle.mask
            self._count(handle, 1)
        return handle

    def release(self, handle: SliceHandle) -> None:
        """Give a slice back.

        Raises:
            ConfigError: it is not taken.
        """
        if handle.mask & ~self.taken:
            raise ConfigError("a slice is released that is not allocated")
        self.taken &= ~handle.mask
        self._count(handle, -1)

    def largest(self) -> int:
        """The largest request that could be placed now."""
        return next((size for size in range(self.free, 0, -1) if self.find(size) is not None), 0)

    def _count(self, handle: SliceHandle, sign: int) -> None:
        for server, ends in handle.fibers:
            self.fibers[server] -= sign * ends


class CircuitRack(AbstractAllocator):
    """Servers of equal size whose accelerators are joined by circuits, any with any; fibers join the servers.

    A slice takes one server where that suffices (the fullest that holds it), else the servers with the most room, in
    as few as possible. Spread over two servers it takes one fiber of each, over more two of each (a ring of servers),
    and of those that are free as many more as `per_member` for each of its accelerators there.

    Source: [lumorph] section 3; 8 x 8 accelerators with 8 fibers a server [lumorph_notes].
    """

    def __init__(self, servers: int = 8, each: int = 8, fibers: int = 8, per_member: float = 0.0) -> None:
        """Servers, accelerators in each, fibers that leave each; fibers that a slice would like for each member."""
        super().__init__(servers * each, [fibers] * servers)
        self.servers, self.each, self.per_member = servers, each, per_member

    @classmethod
    def occupied(cls, taken: Sequence[int], each: int, fibers: int, per_member: float = 0.0) -> "CircuitRack":
        """A rack with so many accelerators taken in each server, by slices that need no fibers.

        Raises:
            ConfigError: more are taken than a server has.
        """
        rack = cls(len(taken), each, fibers, per_member)
        for server, count in enumerate(taken):
            if not 0 <= count <= each:
                raise ConfigError(f"taken = {list(taken)}: a server has 0 to {each} accelerators")
            rack.taken |= ((1 << int(count)) - 1) << server * each
        return rack

    def parts(self, handle: SliceHandle) -> list[tuple[int, int]]:
        """(accelerators, fibers) of a spread slice in each of its servers; nothing for a slice in one server."""
        full = (1 << self.each) - 1
        return [((handle.mask >> server * self.each & full).bit_count(), ends) for server, ends in handle.fibers]

    def volume(self, size: int) -> int | None:
        """Any size."""
        return size if size <= self.capacity else None

    def find(self, size: int) -> SliceHandle | None:
        """Best fit in one server, else the roomiest ones with fibers left."""
        room = [self._room(server) for server in range(self.servers)]
        inside = [server for server in range(self.servers) if room[server] >= size]
        if inside:
            return SliceHandle(self._some(min(inside, key=lambda s: room[s]), size))
        for ends in (1, 2):
            usable = [s for s in range(self.servers) if room[s] and self.fibers[s] >= ends]
            chosen, left, mask = list[tuple[int, int]](), size, 0
            for server in sorted(usable, key=lambda s: -room[s]):
                part = min(left, room[server])
                mask |= self._some(server, part)
                liked = math.ceil(self.per_member * part)
                chosen.append((server, max(ends, min(liked, self.fibers[server]))))
                left -= part
                if left == 0:
                    break
            if left == 0 and (ends == 2 or len(chosen) == 2):
                return SliceHandle(mask, tuple(chosen))
        return None

    def _room(self, server: int) -> int:
        return self.each - (self.taken >> server * self.each & (1 << self.each) - 1).bit_count()

    def _some(self, server: int, count: int) -> int:
        """The first free accelerators of a server."""
        mask, first = 0, server * self.each
        for index in range(first, first + self.each):
            if count and not self.taken >> index & 1:
                mask, count = mask | 1 << index, count - 1
        return mask


class FixedServers(AbstractAllocator):
    """Servers without a fabric between them that a slice could share: part of one server, or whole servers."""

    def __init__(self, servers: int = 8, each: int = 8) -> None:
        """Servers and accelerators in each."""
        super().__init__(servers * each)
        self.inside = CircuitRack(servers, each, fibers=0)

    def volume(self, size: int) -> int | None:
        """Up to a server any size, beyond whole servers."""
        each = self.inside.each
        volume = size if size <= each else -(-size // each) * each
        return volume if volume <= self.capacity else None

    def find(self, size: int) -> SliceHandle | None:
        """The fullest server that holds it, or empty servers."""
        self.inside.taken = self.taken
        each = self.inside.each
        if size <= each:
            return self.inside.find(size)
        full = (1 << each) - 1
        empty = [full << s * each for s in range(self.inside.servers) if not self.taken >> s * each & full]
        needed = -(-size // each)
        return SliceHandle(sum(empty[:needed])) if len(empty) >= needed else None


class _AbstractShapes(AbstractAllocator):
    """A rack whose slices are sets of accelerators listed in advance, by volume; the first free one is taken."""

    def __init__(self, capacity: int, shapes: dict[int, list[int]]) -> None:
        if capacity > MOST:
            raise ConfigError(f"capacity = {capacity} of a torus or cube is more than {MOST}")
        super().__init__(capacity)
        self.masks = dict(sorted(shapes.items()))
        self.shapes = {volume: self._words(masks) for volume, masks in self.masks.items()}

    def _words(self, masks: Sequence[int]) -> np.ndarray:
        """[masks, words] bit masks in words of 64."""
        count, low = -(-self.capacity // WORD), (1 << WORD) - 1
        return np.array([[mask >> WORD * w & low for w in range(count)] for mask in masks], dtype=np.uint64)

    def volume(self, size: int) -> int | None:
        """The next listed volume."""
        return next((volume for volume in self.shapes if volume >= size), None)

    def find(self, size: int) -> SliceHandle | None:
        """First fit."""
        volume = self.volume(size)
        if volume is None or volume > self.free:
            return None
        if self.capacity <= WORD:  # few masks of one word: the first fit is near, and an array takes longer to make
            taken = self.taken
            return next((SliceHandle(mask) for mask in self.masks[volume] if not mask & taken), None)
        clear = ((self.shapes[volume] & self._words([self.taken])) == 0).all(axis=1)
        first = int(clear.argmax())
        return SliceHandle(self.masks[volume][first]) if clear[first] else None

    def largest(self) -> int:
        """The largest volume that could be placed now."""
        return next((volume for volume in reversed(self.shapes) if self.find(volume) is not None), 0)


class TorusCuboids(_AbstractShapes):
    """A torus whose slices are cuboids, anywhere and in any orientation, wrapped round the edges too.

    Source: [zu2024] for slices of a reconfigurable torus; 4 x 4 x 4 [lumorph_notes].
    """

    def __init__(self, extents: tuple[int, ...] = (4, 4, 4)) -> None:
        """Length of each dimension."""
        super().__init__(math.prod(extents), _cuboids(tuple(extents)))


class SubCubes(_AbstractShapes):
    """A BCube or SiPAC(r, l): slices are the sub-cubes of r^k members that some l - k digits have in common.

    Source: [sipac2024]; SiPAC(2, 6) and (4, 3) [lumorph_notes].
    """

    def __init__(self, radix: int = 4, places: int = 3) -> None:
        """Members of a clique and number of dimensions."""
        super().__init__(radix**places, _sub_cubes(radix, places))


@functools.cache
def _cuboids(extents: tuple[int, ...]) -> dict[int, list[int]]:
    """Volume -> masks of all cuboids of a torus."""
    shapes: dict[int, list[int]] = {}
    strides = np.cumprod([1, *extents[:-1]]).tolist()
    for lengths in itertools.product(*(range(1, extent + 1) for extent in extents)):
        origins = (range(e if n < e else 1) for e, n in zip(extents, lengths, strict=True))
        for origin in itertools.product(*origins):
            spans = [[(o + i) % e for i in range(n)] for o, n, e in zip(origin, lengths, extents, strict=True)]
            mask = _mask(sum(map(operator.mul, member, strides)) for member in itertools.product(*spans))
            shapes.setdefault(math.prod(lengths), []).append(mask)
    return shapes


@functools.cache
def _sub_cubes(radix: int, places: int) -> dict[int, list[int]]:
    """Volume -> masks of all sub-cubes of a cube."""
    shapes: dict[int, list[int]] = {}
    for count in range(places + 1):
        for varying in itertools.combinations(range(places), count):
            fixed = [index for index in range(places) if index not in varying]
            for values in itertools.product(range(radix), repeat=len(fixed)):
                base = sum(value * radix**exponent for value, exponent in zip(values, fixed, strict=True))
                digits = itertools.product(range(radix), repeat=count)
                members = (base + sum(d * radix**p for d, p in zip(digit, varying, strict=True)) for digit in digits)
                shapes.setdefault(radix**count, []).append(_mask(members))
    return shapes


def _mask(members: Iterable[int]) -> int:
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask
