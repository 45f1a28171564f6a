"""Names under which a hub publishes models: the option of the group `model` that each means, and its weights' format.

One row of `hub_names.csv` is one name: `name`, `model` (an option of the group; empty where no workload serves the
model), `format` of the published weights, `kind` (empty, or image, audio, omni, embedding) and `source` of the row.
"""

import csv
import functools
import re
from pathlib import Path
from typing import NamedTuple

from ..core.errors import ConfigError
from .groups import available
from .model_names import model_option

__all__ = ["FORMATS", "HubName", "hub_name", "hub_names", "of_the_family"]

TABLE = Path(__file__).resolve().parent / "hub_names.csv"
FORMATS = ("bf16", "fp8", "fp8_block", "int8", "int4", "nvfp4", "mxfp4", "mxfp8")
ENDINGS = (
    ("nvfp4|fp4", "nvfp4"),
    ("mxfp4", "mxfp4"),
    ("mxfp8", "mxfp8"),
    ("fp8(-dynamic|-kv|-block)?", "fp8"),
    ("awq|gptq|int4|w4a16|gptq-int4|awq-int4|4bit", "int4"),
    ("int8|w8a8|gptq-int8", "int8"),
    ("bf16", "bf16"),
)
"""Endings of a name -> format of its weights."""
KINDS = {
    "image": re.compile(
        r"(?i)\b(stable-?diffusion|flux|wan2|qwen-image|sdxl|text2image|image2video|t2v|i2v|glm-image)"
    ),
    "audio": re.compile(r"(?i)(^|[-_/])(tts|asr|whisper|voxtral|voxcpm|moss|audio|speech|talker)([-_\d.]|$)"),
    "omni": re.compile(r"(?i)[-_]omni\b"),
    "embedding": re.compile(r"(?i)(^|[-_/])(embed(ding)?s?|reranker|bge|gte|e5|colbert)([-_\d.]|$)"),
}
"""Kinds of models that no workload serves, by what names of such models have in them."""
NEAREST = 3


class HubName(NamedTuple):
    """A name, its option of the group `model`, format of the published weights, kind, source."""

    name: str
    model: str
    format: str
    kind: str
    source: str


@functools.cache
def hub_names() -> dict[str, HubName]:
    """Every row of the table by its name in lower case."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return {row["name"].lower(): HubName(**row) for row in csv.DictReader(file)}


def hub_name(name: str) -> HubName:
    """A hub's name: a row of the table, else an option or alias whose name it has but for tuning, date and format.

    Raises:
        ConfigError: no such model; an image, audio, omni or embedding model.
    """
    plain = re.sub(r"[-_]?\$\{?\w+\}?$", "", name.strip().rstrip("/")).removeprefix("hf://")
    row = hub_names().get(plain.lower())
    if row is None and "/" not in plain:
        rows = [one for key, one in hub_names().items() if key.rpartition("/")[2] == plain.lower()]
        row = rows[0] if rows and len({(one.model, one.format) for one in rows}) == 1 else None
    if row is not None and (row.kind or row.model in available("model")):
        result = row
    else:
        kind = next((kind for kind, pattern in KINDS.items() if pattern.search(plain)), "")
        option = None if kind else model_option(plain)
        if option is None and not kind:
            raise ConfigError(_unknown(name))
        result = HubName(plain, option or "", _format(plain, option or ""), kind, "its name")
    if result.kind:
        raise ConfigError(
            f"{name!r} is an {result.kind} model, which no workload here serves: `codesign list model`"
            " names those of text"
        )
    return result


def _format(name: str, option: str) -> str:
    """Format that a name ends with; else that of the model's own release."""
    for ending, result in ENDINGS:
        if re.search(rf"(?i)[-_.]({ending})$", name):
            return result
    own = {one.format for one in hub_names().values() if one.model == option and not _ends(one.name)}
    return own.pop() if len(own) == 1 else "bf16"


def _ends(name: str) -> bool:
    return any(re.search(rf"(?i)[-_.]({ending})$", name) for ending, _ in ENDINGS)


def _unknown(name: str) -> str:
    near = of_the_family(name)
    hint = f" (of its family: {', '.join(near)})" if near else ""
    return (
        f"{name!r} is no model of the catalogue{hint}: give its config.json, as in"
        f" model=hf_config workload.model.path=config.json"
    )


def of_the_family(name: str) -> list[str]:
    """Names of the table nearest to a name, of its family alone: `Qwen` says nothing of `Llama`."""
    import difflib

    family = _family(name)
    alike = [row.name for row in hub_names().values() if row.model and family and _family(row.name) == family]
    return difflib.get_close_matches(name, alike, NEAREST, 0.5)


def _family(name: str) -> str:
    """Letters with which a model's own name begins; those of a maker's prefix are none of it."""
    own = re.sub(r"(?i)^(nvidia|meta)-", "", name.rpartition("/")[2])
    match = re.match(r"[A-Za-z]+", own)
    return match[0].lower() if match else ""
