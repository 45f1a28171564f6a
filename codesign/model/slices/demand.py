"""Demand of tenants: sizes of slices and how often they are asked for."""

from dataclasses import dataclass

from ...core.errors import ConfigError


@dataclass(frozen=True)
class DemandMix:
    """Sizes of requests and their relative frequency (equal unless given)."""

    sizes: tuple[int, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Positive sizes, one weight each."""
        if not self.sizes or min(self.sizes) < 1:
            raise ConfigError(f"sizes = {self.sizes} must be whole numbers of at least 1")
        if self.weights and (len(self.weights) != len(self.sizes) or min(self.weights) <= 0):
            raise ConfigError(
                f"weights = {self.weights} must be one positive number for each of {len(self.sizes)} sizes"
            )

    @property
    def shares(self) -> tuple[float, ...]:
        """Probability of each size."""
        weights = self.weights or (1.0,) * len(self.sizes)
        return tuple(weight / sum(weights) for weight in weights)

    @property
    def mean(self) -> float:
        """Accelerators of a mean request."""
        return sum(share * size for share, size in zip(self.shares, self.sizes, strict=True))


MIXES = {
    "uniform 1-16": DemandMix(tuple(range(1, 17))),
    "powers of two to 32": DemandMix((1, 2, 4, 8, 16, 32), (0.30, 0.25, 0.20, 0.15, 0.07, 0.03)),
    "3, 5, 6, 7, 10, 12": DemandMix((3, 5, 6, 7, 10, 12)),
}
"""The mixes of the notes on slices [lumorph_notes].

Equal frequencies give their analytical row exactly for the first and the third. For the second they do not print any;
these give its analytical row (0.758) and, within half a point, its rows of four systems.
"""
