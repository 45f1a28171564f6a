"""Layers of pipeline stages as launch commands say them: embedding and head as layers, shorter ends, a layout in words.

A layout of Megatron (`--pipeline-model-parallel-layout`) lists chunks between bars: `E` the embedding, `t` a layer, `L`
the loss, `m` a module that predicts ahead; `t*3` and `(tt|)*2` repeat.
"""

import re
from typing import NamedTuple

from ...core.errors import ConfigError
from .switches import Switches

__all__ = ["Ends", "ends_of_layout", "layout_text", "megatron_ends", "titan_ends"]

MOST = 100_000  # characters of a layout once its repetitions are written out
MOST_WORDS = 5_000  # as it is given
GROUP, ONE = re.compile(r"\(([EtmL|,]*)\)\*(\d{1,5})"), re.compile(r"([EtmL|])\*(\d{1,5})")


class Ends(NamedTuple):
    """Layers that first and last stage have less than others, and chunks of a stage where a layout says them."""

    first: int = 0
    last: int = 0
    chunks: int = 0
    note: str = ""


def megatron_ends(found: Switches, layers: int, pp: int, chunks: int) -> Ends:
    """Plan fields of Megatron's switches for pipeline layouts.

    Raises:
        ConfigError: ends that leave stages between them without whole layers, a layout that is none.
    """
    text = found.text("pipeline-model-parallel-layout")
    if text:
        return ends_of_layout(text, layers, pp)
    first, last = (
        found.number(f"decoder-{end}-pipeline-num-layers", default=0, low=0)
        if found.has(f"decoder-{end}-pipeline-num-layers")
        else None
        for end in ("first", "last")
    )
    if first is None and last is None:
        embedding, loss = (int(found.has(f"account-for-{part}-in-pipeline-split")) for part in ("embedding", "loss"))
        if (embedding or loss) and layers and (layers + embedding + loss) % (pp * chunks):
            raise ConfigError(
                f"--from: {layers} layers with {embedding + loss} for embedding and loss do not divide over"
                f" {pp} stages of {chunks} chunks (Megatron: --account-for-embedding-in-pipeline-split)"
            )
        return Ends(embedding, loss)
    between = pp - (first is not None) - (last is not None)
    rest = layers - (first or 0) - (last or 0)
    if between < 1 or rest < 0 or rest % between:
        raise ConfigError(
            f"--from: {rest} layers do not divide over the {max(between, 0)} stages between first and last"
            " (Megatron: --decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers)"
        )
    full = rest // between
    less = [0 if end is None else full - end for end in (first, last)]
    if min(less) < 0:
        return Ends(note="a first or last stage with more layers than others: the model has equal stages there")
    return Ends(*less)


def ends_of_layout(text: str, layers: int, pp: int) -> Ends:
    """Plan fields of a pipeline layout string, as Megatron writes it.

    Raises:
        ConfigError: no layout of these layers over these stages.
    """
    what = f"--from: --pipeline-model-parallel-layout {text[:60]!r}"
    written = _written_out(text.replace(" ", ""), what)
    chunks = written.split("|")
    counts = [chunk.count("t") for chunk in chunks]
    if not written.startswith("E") or "L" not in chunks[-1]:
        raise ConfigError(f"{what} has no embedding E first or no loss L last")
    if len(chunks) % pp:
        raise ConfigError(f"{what} has {len(chunks)} chunks, no multiple of {pp} stages")
    if layers and sum(counts) != layers:
        raise ConfigError(f"{what} has {sum(counts)} layers, the model {layers}")
    full = max(counts)
    inner = counts[1:-1]
    if any(count != full for count in inner):
        return Ends(chunks=len(chunks) // pp, note="stages between first and last differ: the model has equal ones")
    return Ends(full - counts[0], full - counts[-1], len(chunks) // pp)


def _written_out(text: str, what: str) -> str:
    """A layout without repetitions."""
    if len(text) > MOST_WORDS:
        raise ConfigError(f"{what} is longer than {MOST_WORDS:,} characters")
    for pattern in (ONE, GROUP):
        while one := pattern.search(text):
            if len(one[1]) * int(one[2]) > MOST or len(text) > MOST:
                raise ConfigError(f"{what} is longer than {MOST:,} layers")
            text = text[: one.start()] + one[1] * int(one[2]) + text[one.end() :]
    if not re.fullmatch(r"[EtmL|,]+", text):
        raise ConfigError(f"{what} has other words than E, t, m, L, |, * and brackets")
    return text.replace(",", "")


def layout_text(layers: int, chunks: int, first: int, last: int) -> str:
    """A layout of so many chunks whose ends have fewer layers."""
    each = (layers + first + last) // chunks
    ends = f"E{'t' * (each - first)}", f"{'t' * (each - last)}L"
    between = f"|({'t' * each}|)*{chunks - 2}" if chunks > 2 else "|"
    return f"{ends[0]}{between}{ends[1]}"


def titan_ends(found: Switches, layers: int, pp: int) -> tuple[int, int]:
    """Layers that torchtitan takes off the first and the last stage: one each where nothing is said."""
    if pp == 1 or not layers:
        return 0, 0
    first, last = (
        found.number(f"parallelism.pipeline-parallel-{end}-stage-less-layers", default=1, low=0)
        for end in ("first", "last")
    )
    return first, last
