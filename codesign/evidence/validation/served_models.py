"""Which model a published name of a served one means: of the configuration, or a dense one by its numbers."""

import re

from ...core.errors import ConfigError
from ...model.workloads import DenseFeedForward, GroupedQueryAttention, Transformer
from .trained_models import configured_model

__all__ = ["model_of", "option_of"]

CONFIGURED = {  # pattern of a published name -> model of the configuration
    r"llama-?3\.?[13]-405b": "llama31_405b", r"llama-?3(\.[13])?-70b": "llama31_70b", r"llama-?3\.1-8b": "llama31_8b",
    r"llama-?2-70b": "llama2_70b", r"llama-?2-13b": "llama2_13b", r"llama-?2-7b": "llama2_7b",
    r"qwen3-32b": "qwen3_32b", r"qwen3-235b-a22b": "qwen3_235b_a22b", r"deepseek-(v3|v3\.1|r1)": "deepseek_v3",
    r"mixtral-8x7b": "mixtral_8x7b", r"mixtral-8x22b": "mixtral_8x22b", r"dbrx": "dbrx", r"falcon-180b": "falcon_180b",
    r"qwen3(-coder)?-30b-a3b": "qwen3_30b_a3b",
    r"llama-4-maverick(-17b-128e)?": "llama4_maverick", r"llama-4-scout(-17b-16e)?": "llama4_scout",
    r"qwen3-next-80b-a3b": "qwen3_next_80b_a3b", r"glm-4\.5": "glm_45", r"glm-4\.5-air": "glm_45_air",
}  # fmt: skip
DENSE = {  # hidden, layers, heads, key-value heads, width of a head, of the feed-forward, tokens known: config.json
    r"mistral-nemo": (5120, 40, 32, 8, 128, 14336, 131072), r"qwen2\.5-7b": (3584, 28, 28, 4, 128, 18944, 152064),
    r"qwen3-14b": (5120, 40, 40, 8, 128, 17408, 151936), r"qwen3-8b": (4096, 36, 32, 8, 128, 12288, 151936),
    r"yi-34b": (7168, 60, 56, 8, 128, 20480, 64000),
}  # fmt: skip
MIXED = r"gpt-oss-\d+b"
"""Models whose experts alone are in 4 bits: no one number format says what their products are."""
ENDS = r"(-(instruct|chat|hf|fp8|nvfp4|dynamic|base|thinking|\d{4}|99|99\.9))*"


def _plain(name: str) -> str:
    return name.rsplit("/", 1)[-1].lower().replace(" ", "-")


def option_of(name: str) -> str:
    """The model of the configuration that a published name means; empty where it is none of them."""
    return next((option for pattern, option in CONFIGURED.items() if re.fullmatch(pattern + ENDS, _plain(name))), "")


def model_of(name: str) -> Transformer:
    """The model that a published name means.

    Raises:
        ConfigError: none that has a configuration.
    """
    plain, option = _plain(name), option_of(name)
    if option:
        return configured_model(option)
    for pattern, shape in DENSE.items():
        if re.fullmatch(pattern + ENDS, plain):
            hidden, layers, heads, groups, depth, width, vocab = map(float, shape)
            attention = GroupedQueryAttention(heads, groups, depth)
            feed_forward = DenseFeedForward(width, gated=1.0)
            return Transformer(name=plain, hidden=hidden, layers=layers, attention=attention,
                               feed_forward=feed_forward, vocab=vocab)  # fmt: skip
    if re.fullmatch(MIXED, plain):
        raise ConfigError(f"model {name!r} has experts alone in 4 bits: no number format of this table says so")
    raise ConfigError(f"model {name!r} has no configuration")
