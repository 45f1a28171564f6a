"""Traffic of the command line that varies: a profile of hours and rates that follow each other as a Markov chain.

    --profile FILE            requests/s of each hour, as `--load` of `autoscale`
    --profile day:3           24 hours as a cosine, the busiest with three times the rate of hour 0, the quietest
    --markov 20/s:2min,60/s:10s   one of these rates for an exponential time, then another

Together the hours give the mean and the chain what it is multiplied by, its own mean taken out.
"""

import math
from typing import NamedTuple

import numpy as np

from ..core.errors import ConfigError
from ..core.units import HOUR_S
from ..model.workloads.daily_load import MOST_PER_S, read_load
from ..simulation.fleet import Modulation, by_profile, markov_modulated
from .plain_values import number, rate

__all__ = ["DAY", "VaryingTraffic", "load_of", "modulation_of", "varying_traffic"]

DAY = "day:"
HOURS, MOST_RATIO = 24, 1e6
MOST_REQUESTS = 1_000_000  # of a profile that are simulated
EXAMPLE = "write --markov 20/s:2min,60/s:10s"


def load_of(text: str) -> np.ndarray:
    """Requests/s of each hour: of a file, or a day of mean 1 whose busiest hour has so many times the quietest's.

    Raises:
        ConfigError: no such file, or no ratio.
    """
    if text != DAY.rstrip(":") and not text.startswith(DAY):
        return read_load(text)
    try:
        ratio = float(text.removeprefix(DAY))
    except ValueError:
        ratio = math.nan
    if not 1 <= ratio <= MOST_RATIO:
        raise ConfigError(
            f"profile {text!r}: write day:3, a day whose busiest hour has three times the rate of its quietest (1 to"
            f" {MOST_RATIO:g})"
        )
    swing = (ratio - 1) / (ratio + 1)
    return 1 - swing * np.cos(2 * np.pi * np.arange(HOURS) / HOURS)


def modulation_of(text: str) -> Modulation:
    """Rates and mean stays of `20/s:2min,60/s:10s`.

    Raises:
        ConfigError: what cannot be read, or less than two rates.
    """
    rates: list[float] = []
    stays: list[float] = []
    for part in text.split(","):
        much, colon, stay = part.strip().rpartition(":")
        if not colon:
            raise ConfigError(f"--markov {text}: {part.strip()!r} is no rate with a time; {EXAMPLE}")
        try:
            rates.append(0.0 if much.strip() == "0/s" else rate(much))
        except ConfigError:
            raise ConfigError(f"--markov {text}: {much.strip()!r} is no rate of requests; {EXAMPLE}") from None
        stays.append(number(stay, "s", "--markov", "2min or 10s"))
    if len(rates) < 2 or max(rates) <= 0:
        raise ConfigError(f"--markov {text}: a chain has two rates or more, one above 0; {EXAMPLE}")
    if max(rates) > MOST_PER_S:
        raise ConfigError(f"--markov {text}: more than {MOST_PER_S:g} requests/s")
    return Modulation(tuple(rates), tuple(stays))


class VaryingTraffic(NamedTuple):
    """A profile by the hour and a modulation, each where there is one."""

    hours: np.ndarray | None
    modulation: Modulation | None

    def arrivals(self, rng: np.random.Generator, count: int | None, rate: float, cv: float) -> np.ndarray:
        """Seconds at which requests come; all of a profile where no count is said.

        Args:
            rng: what is drawn with.
            count: requests.
            rate: mean requests/s, 0 for as the numbers say.
            cv: variation of gaps where the rate stays.

        Raises:
            ConfigError: more requests than are simulated.
        """
        if self.hours is None:
            assert self.modulation is not None
            factor = rate / self.modulation.mean() if rate else 1.0
            rates = [factor * one for one in self.modulation.rates]
            return markov_modulated(rng, rates, self.modulation.stays_s, count or 0)
        hours = self.hours * (rate / self.hours.mean() if rate else 1.0)
        brings = float(hours.sum()) * HOUR_S
        if count is None and brings > MOST_REQUESTS:
            raise ConfigError(
                f"simulate: --profile brings {brings:.3g} requests, of which {MOST_REQUESTS:,} are simulated at most:"
                f" take --rate {0.99 * float(hours.mean()) * MOST_REQUESTS / brings:.3g} and as many fewer replicas, or"
                " --requests N, the first so many"
            )
        came = by_profile(rng, hours, HOUR_S, cv, modulation=self.modulation)
        return came if count is None else came[:count]


def varying_traffic(profile: str, markov: str, rate: float, *, trace: str) -> VaryingTraffic | None:
    """Traffic of the options; none without.

    Raises:
        ConfigError: options that do not go together.
    """
    if not profile and not markov:
        return None
    if trace:
        raise ConfigError("simulate: --trace says when requests come: leave out --profile and --markov")
    hours = load_of(profile) if profile else None
    if profile.startswith(DAY) and not rate:
        raise ConfigError(f"simulate: --profile {profile} says how the day goes: say the mean too, --rate R requests/s")
    return VaryingTraffic(hours, modulation_of(markov) if markov else None)
