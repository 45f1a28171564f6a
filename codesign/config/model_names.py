"""Names of models as hubs and tables write them: which option of the group `model` each means.

    Qwen/Qwen3-32B                             -> qwen3_32b
    mistralai/Mixtral-8x7B-Instruct-v0.1       -> mixtral_8x7b
    meta-llama/Llama-3.3-70B-Instruct-FP8      -> llama31_70b     an alias: the same shape

Two names are one where their plain forms are equal: lower case, without the organisation, dots and signs; what stands
between two digits still counts (`Llama-2-7b` is not `Llama-27b`). Endings that change no shape (`-Instruct`, `-FP8`,
`-2507`) are taken off one by one, so that an option or alias that has such an ending goes before one without. Nothing
is guessed: spelt like an option is not enough. Aliases stand in a model's file (`aliases: [Llama-3-70B]`).
"""

import csv
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import ConfigError
from ..core.json_yaml import is_mapping
from .groups import Edition, accelerator_option, available, files, read_yaml, words

__all__ = [
    "FORMATS", "KINDS", "OPTIONS", "HubName", "choice_meant", "hub_name", "hub_names", "model_aliases",
    "model_option", "of_the_family", "overrides_of_format", "weight_format",
]  # fmt: skip


ENDING = re.compile(
    r"[-_ .](instruct|chat|hf|it|base|thinking|fp8|fp4|nvfp4|mxfp4|int4|int8|bf16|w\d+a\d+|awq|gptq|quantized|dynamic"
    r"|block|v0\.\d|\d{4}|99(\.9)?)$"
)
"""Endings of names without another shape: how it was tuned and stored, its date, the accuracy it is held to."""


def model_option(name: str) -> str | None:
    """The option of the group `model` that a name means, files of plug-ins and a user's own among them.

    Raises:
        ConfigError: two files claim one name.
    """
    paths = files("model")
    if name in {path.stem for path in paths}:
        return name
    names = _options_by_name(_edition(paths))
    named = next((names[plain] for plain in _plain_forms(name) if plain in names), None)
    row = hub_names().get(name.strip().lower()) if named is None else None
    return row.model if row is not None and not row.kind and row.model in {path.stem for path in paths} else named


def choice_meant(word: str) -> str:
    """The choice that a word alone may stand for, `accelerator=h100_sxm` of `H100`; empty where it is no name."""
    named = {"accelerator": accelerator_option(word), "model": model_option(word)}
    for group in ("workload", "experiment", "framework"):
        named[group] = word if word in available(group) else None
    return next((f"{group}={option}" for group, option in named.items() if option), "")


def model_aliases() -> dict[str, str]:
    """Every alias, as its file writes it -> option.

    Raises:
        ConfigError: two files claim one name.
    """
    result = _edition(files("model"))
    _options_by_name(result)
    return {name: Path(path).stem for path, _ in result for name in _names(Path(path))}


def _edition(paths: list[Path]) -> Edition:
    return tuple((str(path), path.stat().st_mtime_ns) for path in paths)


@functools.lru_cache(maxsize=8)
def _options_by_name(edition: Edition) -> dict[str, str]:
    """Plain form of every option and alias -> option."""
    owners: dict[str, tuple[str, str]] = {}
    for path in (Path(path) for path, _ in edition):
        for name in (path.stem, *_names(path)):
            owner, written = owners.setdefault(_plain(name), (path.stem, name))
            if owner != path.stem:
                also = "" if written == name else f" as {written!r}"
                raise ConfigError(
                    f"model/{path.name}: alias {name!r} stands in model/{owner}.yaml too{also}: a name means one model;"
                    " a copied file gives itself aliases of its own"
                )
    return {plain: option for plain, (option, _) in owners.items() if plain}


def _names(path: Path) -> list[str]:
    """Aliases in a model's file, whichever package it is written for."""
    node: Any = read_yaml(path)
    for key in ("workload", "model"):
        node = node.get(key, node) if is_mapping(node) else {}
    return words(node, "aliases", path) if is_mapping(node) else []


def _plain(name: str) -> str:
    """Letters and digits; `_` where signs stand between two digits, but for a dot."""
    name = name.rsplit("/", 1)[-1].lower().replace(".", "")
    name = re.sub(r"(?<=\d)[\W_]+(?=\d)", "_", name)
    return re.sub(r"(?<!\d)[\W_]+|[\W_]+(?!\d)", "", name)


def _plain_forms(name: str) -> Iterator[str]:
    """The plain form of a name, and of what is left as its endings are taken off."""
    name = name.rsplit("/", 1)[-1].strip().lower()
    yield _plain(name)
    while ending := ENDING.search(name):
        name = name[: ending.start()]
        yield _plain(name)


# Names under which a hub publishes models: the option of the group `model` that each means, and its weights' format.
#
# One row of `hub_names.csv` is one name: `name`, `model` (an option of the group; empty where no workload serves the
# model), `format` of the published weights, `kind` (empty, or image, audio, omni, embedding) and `source` of the row.


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
    formats = {one.format for one in hub_names().values() if one.model == option and not _ends(one.name)}
    return formats.pop() if len(formats) == 1 else "bf16"


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
    base_name = re.sub(r"(?i)^(nvidia|meta)-", "", name.rpartition("/")[2])
    match = re.match(r"[A-Za-z]+", base_name)
    return match[0].lower() if match else ""


# Number formats that a quantised checkpoint has, as overrides.


QUANTIZATIONS = (
    (r"fp8.*|w8a8_fp8|ptpc_fp8|fbgemm_fp8", "fp8"),
    (r"mxfp8", "mxfp8"),
    (r"(modelopt_fp4|nvfp4|petit_nvfp4).*", "nvfp4"),
    (r"(mxfp4|gpt_oss_mxfp4|quark_mxfp4|quark_int4fp8_moe).*", "mxfp4"),
    (r"(awq|gptq|gptq_marlin|awq_marlin|moe_wna16|w4a8|w4afp8|qoq|bitsandbytes|marlin|int4).*", "int4"),
    (r"(int8|w8a8_int8|experts_int8|w8a8|blockwise_int8|smoothquant).*", "int8"),
)
"""Values of `--quantization` -> format of the weights; others take what the checkpoint says."""
OPTIONS = {"fp8": "fp8", "fp8_block": "fp8_block", "mxfp8": "fp8", "int8": "int8", "nvfp4": "nvfp4", "mxfp4": "mxfp4",
           "int4": "int4"}  # fmt: skip
"""Format -> option of the group `precision`, of which that of mxfp8 has coarser scales."""
ROUTED = ("nvfp4", "mxfp4", "int4")
"""Formats that published mixtures have in their experts alone, with attention as it was (`ignore` of their files)."""


def weight_format(quantization: str) -> str:
    """Format that `--quantization` chooses; empty where the checkpoint's own holds."""
    return next((result for pattern, result in QUANTIZATIONS if re.fullmatch(pattern, quantization)), "")


def overrides_of_format(name: str, *, experts: bool) -> list[str]:
    """Overrides of a checkpoint's format: the cache stays in two bytes, as engines keep it unless they are told.

    Args:
        name: a format of `OPTIONS`.
        experts: the model is a mixture, quantised by whoever published it.
    """
    cache = ["workload.precision.kv_cache=bf16"] if name in ("fp8", "mxfp8") else []
    routed = [f"workload.precision.by_class.{part}=bf16" for part in ("attention", "linear_attention")]
    return [f"precision={OPTIONS[name]}", *cache, *(routed if experts and name in ROUTED else [])]
