"""Price list of an API beside a fleet of one's own: what either costs by load, and from which load on owning pays.

With c dollars a second of a replica of one's own, rho requests a second that it serves, and a dollars a request of the
API, a load of q requests a second costs

    own    c max(1, ceil(q / rho))        api    a q

Owning is cheaper from q = c / a on where c / a <= rho, else never; just after each further replica it may be dearer
again, until there are k with (k - 1) rho a >= k c: from (k - 1) c / a on, k = ceil(rho a / (rho a - c)), it is cheaper
at every load.

Assumes: replicas are on all the time; what is bought matches the load from the first day; the API serves as well.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..core.errors import ConfigError, suggestion
from ..model.metrics.cache_placement import has_prefix_cache, hits_of
from ..model.scenario import Scenario

__all__ = ["ApiPrices", "SelfHostedFleet", "api_prices", "load_table", "usd_per_million_output", "usd_per_request"]

KEYS = ("in", "cached", "out")
EXAMPLE = "write --api in=0.27,cached=0.07,out=1.10, dollars a million tokens"
MILLION = 1e6


@dataclass(frozen=True)
class ApiPrices:
    """Dollars a million tokens of prompts, of prompts found in a cache, of answers."""

    input: float
    cached: float
    output: float

    def usd(self, prompt: float, cached: float, answer: float) -> float:
        """Dollars of a request: tokens of its prompt, of these in a cache, of its answer."""
        return ((prompt - cached) * self.input + cached * self.cached + answer * self.output) / MILLION

    def text(self) -> str:
        """The list on one line."""
        return f"in ${self.input:g}, cached ${self.cached:g}, out ${self.output:g} a million tokens"


def api_prices(text: str) -> ApiPrices:
    """The price list of `in=0.27,cached=0.07,out=1.10`; cached tokens cost what others do where nothing is said.

    Raises:
        ConfigError: a key or number that is none, or no price of prompts or answers.
    """
    result: dict[str, float] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        key, _, value = (each.strip() for each in part.partition("="))
        if key not in KEYS:
            raise ConfigError(
                f"--api {part}: {key!r} is not one of {', '.join(KEYS)}{suggestion(key, KEYS)}; {EXAMPLE}"
            )
        if key in result:
            raise ConfigError(f"--api {text}: {key} is said twice; {EXAMPLE}")
        try:
            result[key] = float(value.removeprefix("$"))
        except ValueError:
            result[key] = math.nan
        if not 0 <= result[key] < math.inf:
            raise ConfigError(f"--api {part}: {value!r} is no price of 0 or more; {EXAMPLE}")
    if not {"in", "out"} <= set(result):
        raise ConfigError(f"--api {text!r}: in and out are needed; {EXAMPLE}")
    return ApiPrices(result["in"], result.get("cached", result["in"]), result["out"])


def usd_per_request(prices: ApiPrices, scenario: Scenario) -> float:
    """Dollars of a mean request of a scenario that serves, as much of its prompt in a cache as it finds itself."""
    work: Any = scenario.workload
    prompt = float(work.prompt_tokens())
    cached = hits_of(scenario).share if has_prefix_cache(scenario) else float(getattr(work, "cached_ratio", 0.0))
    return prices.usd(prompt, prompt * cached, float(work.output_tokens))


def usd_per_million_output(prices: ApiPrices, scenario: Scenario) -> float:
    """Dollars of an API for a million tokens that come out, prompts with them, as of a fleet of one's own.

    Raises:
        ConfigError: a scenario that serves no requests.
    """
    if not hasattr(scenario.workload, "output_tokens"):
        raise ConfigError(f"--api: an API answers requests, {type(scenario.workload).__name__} has none")
    work: Any = scenario.workload
    return usd_per_request(prices, scenario) / float(work.output_tokens) * MILLION


@dataclass(frozen=True)
class SelfHostedFleet:
    """Replicas of one's own: dollars and requests a second of each."""

    usd_per_s: float
    requests_per_s: float

    def cost(self, load: np.ndarray) -> np.ndarray:
        """Dollars a second of as many replicas as a load needs."""
        return self.usd_per_s * np.maximum(np.ceil(load / self.requests_per_s - 1e-9), 1.0)

    def cheaper_from(self, usd_per_request: float) -> float:
        """The least load at which owning is cheaper than an API; infinite where it never is."""
        if usd_per_request * self.requests_per_s < self.usd_per_s or usd_per_request <= 0:
            return math.inf
        return self.usd_per_s / usd_per_request

    def always_from(self, usd_per_request: float) -> float:
        """The load from which on owning is never dearer; infinite where there is none."""
        earned = usd_per_request * self.requests_per_s
        if earned <= self.usd_per_s:
            return math.inf
        replicas = math.ceil(earned / (earned - self.usd_per_s) - 1e-9)
        return max(replicas - 1, 1) * self.usd_per_s / usd_per_request


def load_table(fleet: SelfHostedFleet, usd_per_request: float, requests_per_s: float, second_s: float) -> pd.DataFrame:
    """Dollars of either by load, up to twice the load asked for or that from which on owning always pays.

    Args:
        fleet: one's own.
        usd_per_request: of the API.
        requests_per_s: requests/s.
        second_s: seconds of the period that dollars are of.
    """
    always = fleet.always_from(usd_per_request)
    most = 2 * max(requests_per_s, always if math.isfinite(always) else 0.0)
    edges = fleet.requests_per_s * np.arange(1, math.ceil(most / fleet.requests_per_s) + 1)
    load = np.unique(np.concatenate([np.linspace(most / 400, most, 400), edges, edges * (1 + 1e-6)]))
    load = load[load <= most]
    owned = fleet.cost(load)
    return pd.DataFrame({
        "requests_per_s": load, "own_usd": owned * second_s, "api_usd": usd_per_request * load * second_s,
    })  # fmt: skip
