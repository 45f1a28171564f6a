"""Values of plain questions as people write them: `30/s`, `1.8k/min`, `2s`, `90d`, `$5M`, `15T`, `h200,b200`."""

import math
import re
from typing import NamedTuple

import numpy as np

from ..config.groups import accelerator_option, available
from ..config.model_names import model_option
from ..config.written import AMOUNTS, in_unit, meant
from ..core.errors import ConfigError, suggestion
from ..core.units import HOUR_S
from ..model.workloads.daily_load import MOST_PER_S, read_load
from ..simulation.fleet import Modulation, by_profile, markov_modulated

# Traffic of the command line that varies: a profile of hours and rates that follow each other as a Markov chain.
#
#     --profile FILE            requests/s of each hour, as `--load` of `autoscale`
#     --profile day:3           24 hours as a cosine, the busiest with three times the rate of hour 0, the quietest
#     --markov 20/s:2min,60/s:10s   one of these rates for an exponential time, then another
#
# Together the hours give the mean and the chain what it is multiplied by, its own mean taken out.


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


RATES = {"rps": "/s", "qps": "/s"}


def number(text: str, unit: str, option: str, example: str) -> float:
    """A positive number of a unit, in SI units.

    Raises:
        ConfigError: no such number; one without a unit where units differ by a thousand, such as seconds.
    """
    result = in_unit(text, unit, option)
    if result is None and unit == "$":
        result = _plain(text)
    if result is None and _plain(text) is not None:
        raise ConfigError(f"{option} {text}: of what? write {example}")
    if result is None or not 0 < result < float("inf"):
        raise ConfigError(f"{option} {text!r} is no number above 0 with a unit; write {example}")
    return result


def days(text: str) -> float:
    """Seconds of `90` or `90d`, days both, or of `2160h`.

    Raises:
        ConfigError: no such time.
    """
    plain = _plain(text)
    if plain is not None and not 0 < plain < float("inf"):
        raise ConfigError(f"--days {text} is no number above 0; write 90, 90d or 2160h")
    return number(text if plain is None else f"{text.strip()}d", "s", "--days", "90, 90d or 2160h")


def rate(text: str) -> float:
    """Requests a second: `30/s`, `30rps`, `1800 requests/min`, `2M/day`.

    Raises:
        ConfigError: no such rate.
    """
    plain = re.sub(r"requests?|req|\s", "", re.sub(r"\s+per\s+", "/", text.lower()))
    if "token" in plain:
        raise ConfigError(
            f"--rate {text!r} counts tokens; write requests, 30/s, and their lengths as --input and --output"
        )
    for word, unit in RATES.items():
        plain = plain.replace(word, unit)
    amount, slash, unit = plain.partition("/")
    much = count_of(amount, "--rate", "30/s or 2M/day") if slash else None
    seconds = meant(f"1/{unit}") if slash else None
    if much is None or seconds is None or dict(seconds.kind) != {"s": -1}:
        raise ConfigError(f"--rate {text!r} is no rate of requests; write 30/s, 1800/min or 2M/day")
    return much * seconds.value


def rate_or_number(text: str) -> float:
    """Requests a second of `30/s`, or of a number alone.

    Raises:
        ConfigError: no such rate.
    """
    try:
        return float(text)
    except ValueError:
        return rate(text)


def count_of(text: str, option: str, example: str = "512, 2k, 4M or 15T") -> float:
    """A number of things: `512`, `2k`, `15T`, `4,194,304`.

    Raises:
        ConfigError: no such number.
    """
    plain = text.strip().removesuffix("tokens").removesuffix("token").strip()
    result = _plain(plain)
    if result is None and (match := re.fullmatch(r"(.*?)\s*([a-zA-Z]+)", plain)) and match[2] in AMOUNTS:
        amount = _plain(match[1])
        result = None if amount is None else amount * AMOUNTS[match[2]]
    if result is None or not 0 < result < float("inf"):
        raise ConfigError(f"{option} {text!r} is no number above 0; write {example}")
    return result


def _plain(text: str) -> float | None:
    try:
        return float(text.replace(",", "").replace("_", ""))
    except ValueError:
        return None


def accelerators(text: str) -> list[str]:
    """Options of the group `accelerator` that a list of names means: `h200`, `H200`, `NVIDIA-H200`, `all`.

    Raises:
        ConfigError: a name that none has.
    """
    names = available("accelerator")
    result: list[str] = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        option = accelerator_option(name)
        if option is None:
            raise ConfigError(f"--on {name}: no such accelerator{suggestion(name.lower(), names)}")
        result += [option] if option not in result else []
    if not result:
        raise ConfigError("--on: name at least one accelerator, as in --on h200,b200 (`codesign list accelerator`)")
    return result


def model_overrides(name: str) -> list[str]:
    """Overrides that choose a model: by a name of the catalogue or of a hub, or the path of a config.json.

    Raises:
        ConfigError: none of these.
    """
    if name.endswith(".json"):
        return ["model=hf_config", f"model.path={name}"]
    option = model_option(name)
    if option is None:
        from ..config import available

        spelt = re.sub(r"[\W_]+", "_", name.rsplit("/", 1)[-1].lower().replace(".", ""))
        hint = suggestion(spelt, available("model"))
        raise ConfigError(f"{name!r} is no model here{hint}, or the path of its config.json")
    return [f"model={option}"]
