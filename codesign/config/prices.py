"""Purchase prices of accelerators in one file: `prices=NAME` in place of what each one's own file says.

A file of the group `prices` lists whole products, memory included, before host and network, as sellers quote them:

    # mine/prices/quotes.yaml        codesign compare --conf mine prices=quotes accelerator=h200,b200 ...
    usd_per_device: {h200: $31k, b200: 42000}

The price of an accelerator is then what is listed less its memory at the catalogue's price of a byte, so that a search
that varies the memory still pays for it. What is typed as `cluster.accelerator.price_usd=...` holds over both.
"""

import math
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from ..core.errors import ConfigError, suggestion
from ..core.yaml_io import is_mapping
from .written import in_unit

GROUP = "prices"
LISTED = "usd_per_device"
KEYS = (LISTED, "provenance")
BYTES = ("capacity_bytes", "usd_per_byte")
OWN = {"source": "assumption", "kind": "assumed"}  # of a list that says nothing of where it comes from


def with_prices(config: DictConfig) -> DictConfig:
    """The configuration with the listed price of its accelerator, and without the list.

    Raises:
        ConfigError: a key that says nothing, an accelerator without a listed price, a price that is none or is less
            than that of the memory, a memory whose price is not that of so many bytes.
    """
    if GROUP not in config:
        return config
    told: Any = OmegaConf.to_container(config[GROUP], resolve=True) if config[GROUP] is not None else {}
    with open_dict(config):
        del config[GROUP]
    listed = _listed(told)
    accelerator = OmegaConf.select(config, "cluster.accelerator")
    name = str(accelerator.get("name", ""))
    if name not in listed:
        raise ConfigError(
            f"{GROUP}.{LISTED} has no price of {name!r}{suggestion(name, listed)}; give one under that name"
        )
    usd, memory = _usd(name, listed[name]), _memory_usd(accelerator)
    if usd <= memory:
        raise ConfigError(
            f"{GROUP}.{LISTED}.{name} = {usd:g} USD is not more than its memory costs, {memory:,.0f} USD; "
            "allowed: the price of the whole device"
        )
    origins: dict[str, dict[str, Any]] = told.get("provenance") or {}
    origin = {**(origins.get(f"{LISTED}.{name}") or OWN)}
    note = "; ".join(filter(None, [origin.get("note", ""), f"{usd:,.0f} USD listed less memory, {memory:,.0f} USD"]))
    with open_dict(accelerator):
        accelerator.price_usd = usd - memory
        accelerator.provenance = OmegaConf.merge(
            accelerator.get("provenance") or {}, {"price_usd": origin | {"note": note}}
        )
    return config


def _listed(told: Any) -> Mapping[str, Any]:
    """Accelerator -> its price as it is written."""
    for key in told if is_mapping(told) else ():
        if key not in KEYS:
            raise ConfigError(f"{GROUP}: no key {key!r}{suggestion(str(key), KEYS)}")
    listed = told.get(LISTED) if is_mapping(told) else None
    if not is_mapping(listed) or not listed:
        raise ConfigError(f"{GROUP}: it lists no price; write `{LISTED}: {{h200: 31000}}`")
    return {str(name): value for name, value in listed.items()}


def _usd(name: str, written: Any) -> float:
    """A listed price."""
    value: Any = in_unit(written, "$", f"{GROUP}.{LISTED}.{name}") if isinstance(written, str) else written
    sound = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    if not sound:
        raise ConfigError(f"{GROUP}.{LISTED}.{name} = {written!r} is no price; allowed: dollars, such as 31000 or $31k")
    return float(value)


def _memory_usd(accelerator: DictConfig) -> float:
    """Price of the product's memory by the catalogue, $."""
    memory: Any = accelerator.get("hbm") or {}
    values: list[Any] = [memory.get(key) for key in BYTES]
    if not all(isinstance(value, int | float) for value in values):
        raise ConfigError(
            f"{GROUP}: a listed price is of {accelerator.get('name', '')} with its own memory; "
            "allowed: no memory=..., or cluster.accelerator.price_usd=... for what the device costs without"
        )
    return float(values[0]) * float(values[1])
