"""Names of models as hubs and tables write them: which option of the group `model` each means.

    Qwen/Qwen3-32B                             -> qwen3_32b
    mistralai/Mixtral-8x7B-Instruct-v0.1       -> mixtral_8x7b
    meta-llama/Llama-3.3-70B-Instruct-FP8      -> llama31_70b     an alias: the same shape

Two names are one where their plain forms are equal: lower case, without the organisation, dots and signs; what stands
between two digits still counts (`Llama-2-7b` is not `Llama-27b`). Endings that change no shape (`-Instruct`, `-FP8`,
`-2507`) are taken off one by one, so that an option or alias that has such an ending goes before one without. Nothing
is guessed: spelt like an option is not enough. Aliases stand in a model's file (`aliases: [Llama-3-70B]`).
"""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError
from ..core.yaml_io import is_mapping
from .groups import Edition, accelerator_option, available, files, read_yaml, words

__all__ = ["choice_meant", "model_aliases", "model_option"]

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
    known = _known(_edition(paths))
    return next((known[plain] for plain in _plain_forms(name) if plain in known), None)


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
    _known(result)
    return {name: Path(path).stem for path, _ in result for name in _names(Path(path))}


def _edition(paths: list[Path]) -> Edition:
    return tuple((str(path), path.stat().st_mtime_ns) for path in paths)


@functools.lru_cache(maxsize=8)
def _known(edition: Edition) -> dict[str, str]:
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
