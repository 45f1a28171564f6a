"""Values of plain questions as people write them: `30/s`, `1.8k/min`, `2s`, `90d`, `$5M`, `15T`, `h200,b200`."""

import re

from ..config.groups import accelerator_option, available
from ..config.model_names import model_option
from ..config.written import AMOUNTS, in_unit, meant
from ..core.errors import ConfigError, suggestion

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
    plain = text.strip().lower().replace("requests", "").replace("request", "").replace("req", "").replace(" ", "")
    for word, unit in RATES.items():
        plain = plain.replace(word, unit)
    amount, slash, unit = plain.partition("/")
    much = count_of(amount, "--rate") if slash else None
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


def count_of(text: str, option: str) -> float:
    """A number of things: `512`, `2k`, `15T`, `4,194,304`.

    Raises:
        ConfigError: no such number.
    """
    plain = text.strip().removesuffix("tokens").removesuffix("token").strip()
    result = _plain(plain)
    if result is None and plain[-1:] in AMOUNTS:
        amount = _plain(plain[:-1])
        result = None if amount is None else amount * AMOUNTS[plain[-1]]
    if result is None or not 0 < result < float("inf"):
        raise ConfigError(f"{option} {text!r} is no number of things; write 512, 2k, 4M or 15T")
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
    known = available("accelerator")
    result: list[str] = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        option = accelerator_option(name)
        if option is None:
            raise ConfigError(f"--on {name}: no such accelerator{suggestion(name.lower(), known)}")
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
