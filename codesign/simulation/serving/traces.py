"""Traces of requests as they are published: columns and keys by any of their names, times in any of their units.

CSV           own columns (arrival_s, input_tokens, output_tokens); Azure (TIMESTAMP, ContextTokens, GeneratedTokens);
              BurstGPT (Timestamp, Request tokens, Response tokens); any whose columns have names of `ALIASES`
JSON lines    Mooncake (timestamp in ms, input_length, output_length, hash_ids), and any with keys of `ALIASES`
JSON          lists of such objects or of [prompt, answer]; lists by name (input_lens, output_lens, start_times, as
              a benchmark of vLLM writes them); conversations (ShareGPT) and payloads (inputs of AIPerf), whose texts
              count `CHARACTERS` a token
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import ConfigError
from ...core.json_yaml import is_list, is_mapping
from ...core.untrusted_io import tree_of_json

__all__ = ["ALIASES", "TraceTable", "alias_of", "labels_of", "read_json_trace", "shared_prefix", "to_seconds"]

ALIASES = {
    "input_tokens": [
        "inputtokens",
        "contexttokens",
        "requesttokens",
        "inputlength",
        "inputlen",
        "inputlens",
        "promptlen",
        "promptlens",
        "promptlength",
        "prompttokens",
        "numprefilltokens",
        "prefilltokens",
        "numprompttokens",
        "inputsequencelength",
        "isl",
        "prefilllength",
        "prompttokencount",
        "inputtokencount",
        "numinputtokens",
        "promptnumtokens",
    ],
    "output_tokens": [
        "outputtokens",
        "generatedtokens",
        "responsetokens",
        "outputlength",
        "outputlen",
        "outputlens",
        "completiontokens",
        "numdecodetokens",
        "decodetokens",
        "outputsequencelength",
        "osl",
        "decodelength",
        "outputtokencount",
        "maxtokens",
        "numoutputtokens",
        "maxcompletiontokens",
        "responselength",
        "completionlength",
        "answertokens",
        "responselen",
    ],
    "arrival_s": [
        "arrivals",
        "timestamp",
        "arrivaltime",
        "arrivedat",
        "time",
        "starttime",
        "starttimes",
        "arrivaltimestamp",
        "requesttimestamp",
        "arrivaltimes",
        "timestamps",
        "times",
        "arrivalms",
        "timestampms",
        "arrivaltimems",
        "requesttime",
        "sendtime",
        "arrival",
        "createdat",
    ],
}
"""Column -> names of it, in letters and digits alone."""
LABELS = {
    "session": ["session", "sessionid", "conversationid", "conversation", "chatid", "dialogid"],
    "class": ["class", "requestclass", "priority", "tenant", "logtype", "requesttype"],
}
"""Column of labels -> names of it: whose turn a request is, and what limits it has."""
MOST_LABELS = 64  # classes
BLOCK_SIZES = (16, 32, 64, 128, 256, 512, 1024)  # tokens of a block of hash_ids, where its number says which
AGREE = 0.9  # share of the requests whose number of blocks a size explains
CHARACTERS = 4.0  # of English text a token, about
BLOCK = 512  # tokens of a block of Mooncake's hash_ids
SHOWN = 8
MOST_REQUESTS = 20_000_000


class TraceTable(NamedTuple):
    """Tokens of prompts and answers, arrivals in seconds where known, share of prompts in blocks seen before.

    labels: of sessions and classes, where there are any; blocks: hashes of each prompt's blocks, of so many tokens.
    """

    prompts: np.ndarray
    outputs: np.ndarray
    arrivals: np.ndarray | None
    cached_ratio: float = 0.0
    labels: Mapping[str, Sequence[str]] = {}
    blocks: Sequence[Sequence[int]] = ()
    block_tokens: int = BLOCK


def alias_of(name: str) -> str:
    """Column that a name means; empty where it means none."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    if re.sub(UNIT, "", plain) in ALIASES["arrival_s"]:
        return "arrival_s"
    return next((column for column, names in ALIASES.items() if plain in names), "")


UNIT = r"(ms|us|ns|s|sec|secs|seconds)$"
"""Unit at the end of the name of a time, in letters alone."""
PER_SECOND = {"ms": 1e3, "us": 1e6, "ns": 1e9}


def label_of(name: str) -> str:
    """Column of labels that a name means; empty where it means none."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return next((column for column, names in LABELS.items() if plain in names), "")


def labels_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Labels of requests, by column; more classes than anybody agrees on limits for are none."""
    names = {column: str(key) for key in (rows[0] if rows else ()) if (column := label_of(str(key)))}
    result = {column: [str(row.get(name)) for row in rows] for column, name in names.items()}
    if len(set(result.get("class", ()))) > MOST_LABELS:
        del result["class"]
    return result


def numbered(blocks: Sequence[Any], prompts: np.ndarray, what: str) -> tuple[list[list[int]], int]:
    """Hashes as numbers from 0 on, and tokens of a block; () where no request has any.

    Raises:
        ConfigError: the first request whose hash_ids are no list of numbers or names.
    """
    if not any(is_list(one) for one in blocks):
        return [], BLOCK
    codes: dict[Any, int] = {}
    result: list[list[int]] = []
    for at, ids in enumerate(blocks):
        if ids is None:
            result.append([])
            continue
        if not is_list(ids) or not all(isinstance(one, int | str) for one in ids):
            raise ConfigError(f"{what}, request {at + 1}: hash_ids = {_short(ids)} is no list of numbers or names")
        result.append([codes.setdefault(one, len(codes)) for one in ids])
    counts = np.array([len(ids) for ids in result])
    for size in BLOCK_SIZES:
        block_aligned = (counts == -(-prompts // size)) | (counts == prompts // size)
        if block_aligned[counts > 0].mean() >= AGREE:
            return result, size
    return result, BLOCK


def to_seconds(values: Sequence[Any], name: str, what: str, *, milliseconds: bool = False) -> np.ndarray:
    """Times in seconds after the first.

    They are dates, seconds, or what the name or the format says: ms, us or ns.

    Raises:
        ConfigError: the first that is no time.
    """
    if values and isinstance(values[0], str) and re.match(r"\s*\d{4}-\d\d-\d\d", values[0]):
        return _dates(values, name, what)
    result = np.empty(len(values))
    for at, value in enumerate(values):
        number = _float(value)
        if number is None:
            raise ConfigError(f"{what}, request {at + 1}: {name} = {_short(value)} is no time")
        result[at] = number
    result -= result.min(initial=np.inf) if len(result) else 0.0
    span = float(result.max(initial=0.0))
    letters = re.sub(r"[^a-z]", "", name.lower())
    stated = re.search(UNIT, letters) if letters not in ALIASES["arrival_s"] or letters.endswith("ms") else None
    if milliseconds or (stated and stated[1] in PER_SECOND):
        return result / PER_SECOND[stated[1] if stated and stated[1] in PER_SECOND else "ms"]
    absolute = max((number for value in values[:1] if (number := _float(value)) is not None), default=0.0)
    unit = 1e9 if absolute > 1e17 else 1e6 if absolute > 1e14 else 1e3 if absolute > 1e11 else 1.0  # since 1970
    return result / unit if span else result


def _dates(values: Sequence[Any], name: str, what: str) -> np.ndarray:
    result = np.empty(len(values))
    for at, value in enumerate(values):
        try:
            text = re.sub(r"(\.\d{6})\d+", r"\1", str(value).strip())  # seven digits in Azure's
            stamp = datetime.fromisoformat(text.replace(" UTC", "+00:00"))
            result[at] = (stamp.replace(tzinfo=None) - datetime(2000, 1, 1)).total_seconds()
        except (ValueError, OverflowError):
            raise ConfigError(f"{what}, request {at + 1}: {name} = {_short(value)} is no date") from None
    return result - result.min(initial=np.inf)


def read_json_trace(text: str, what: str) -> TraceTable:
    """Requests of JSON or of lines of JSON.

    Raises:
        ConfigError: no JSON, or none of the forms that are read.
    """
    rows = _rows(text, what)
    if len(rows) > MOST_REQUESTS:
        raise ConfigError(f"{what} has {len(rows):,} requests; allowed: at most {MOST_REQUESTS:,}")
    names = {column: key for row in rows[:1] if is_mapping(row) for key in row if (column := alias_of(str(key)))}
    missing = [column for column in ("input_tokens", "output_tokens") if column not in names]
    if not rows:
        raise ConfigError(f"{what} holds no request")
    if missing:
        keys = ", ".join(list(map(str, rows[0]))[:SHOWN]) if is_mapping(rows[0]) else _short(rows[0])
        raise ConfigError(f"{what} has no {' and no '.join(missing)} (it has {keys})")
    selected = [row for row in rows if is_mapping(row)]
    columns = [
        _counts([row.get(names[column]) for row in selected], column, what) for column in ALIASES if column in names
    ][:2]
    served = (columns[0] >= 1) & (columns[1] >= 1)  # what failed has no answer
    came = None
    if "arrival_s" in names:
        hashed = any("hash_ids" in row for row in selected[:1]) or "input_length" in names["input_tokens"]
        came = to_seconds(
            [row.get(names["arrival_s"]) for row in selected], names["arrival_s"], what, milliseconds=hashed
        )[served]
    blocks = [row.get("hash_ids") for row, good in zip(selected, served, strict=True) if good]
    prompts = columns[0][served]
    hashes, size = numbered(blocks, prompts, what)
    labels = labels_of([row for row, good in zip(selected, served, strict=True) if good])
    result = TraceTable(prompts, columns[1][served], came, shared_prefix(blocks, prompts), labels, hashes, size)
    return result if came is None else in_order(result)


def in_order(table: TraceTable) -> TraceTable:
    """Requests as they come, the first at 0."""
    assert table.arrivals is not None
    order = np.argsort(table.arrivals, kind="stable")
    came = table.arrivals[order]
    came = came - came[0] if len(came) else came
    labels = {name: [values[one] for one in order] for name, values in table.labels.items()}
    places: list[int] = order.tolist()
    blocks: list[Sequence[int]] = [table.blocks[one] for one in places] if table.blocks else []
    return table._replace(
        prompts=table.prompts[order], outputs=table.outputs[order], arrivals=came, labels=labels, blocks=blocks
    )


def shared_prefix(blocks: Iterable[Any], prompts: np.ndarray) -> float:
    """Share of prompt tokens in leading blocks that a request before had, as a cache without an end finds them."""
    seen = set[Any]()
    result = 0.0
    for ids, tokens in zip(blocks, prompts, strict=True):
        if not is_list(ids):
            continue
        hits = 0
        for one in ids:
            if not isinstance(one, int | str) or one not in seen:
                break
            hits += 1
        result += min(hits * BLOCK, float(tokens))
        seen.update(one for one in ids if isinstance(one, int | str))
    total = float(prompts.sum()) if len(prompts) else 0.0
    return result / total if total else 0.0


def _rows(text: str, what: str) -> list[Any]:
    """Requests of a text, each a mapping of names to numbers."""
    plain = text.strip()
    lines = [line for line in plain.splitlines() if line.strip()]
    if len(lines) > 1 and plain[0] == "{" and lines[0].rstrip().endswith("}"):
        return [tree_of_json(line, f"{what}, line {number}") for number, line in enumerate(lines, 1)]
    tree = tree_of_json(plain, what)
    if is_mapping(tree):
        nested = next((tree[key] for key in ("data", "requests", "trace", "inputs") if is_list(tree.get(key))), None)
        if nested is None:
            return _by_name(tree, what)
        tree = nested
    if not is_list(tree) or not tree:
        raise ConfigError(f"{what} is no trace: a list of requests, or a line of JSON each")
    return [row for one in tree for row in _requests(one)]


def _by_name(tree: Mapping[str, Any], what: str) -> list[Any]:
    """Lists of one length under names of columns; one request where they are numbers."""
    names = {str(key): values for key, values in tree.items() if alias_of(str(key)) and is_list(values)}
    if not names:
        return [tree]
    counts = {len(values) for values in names.values()}
    if len(counts) > 1:
        text = ", ".join(f"{key} {len(values)}" for key, values in names.items())
        raise ConfigError(f"{what}: lists of different lengths: {text}")
    return [dict(zip(names, row, strict=True)) for row in zip(*names.values(), strict=True)]


def _requests(one: Any) -> list[Any]:
    """Requests of one entry: a mapping, a pair, a conversation, or the payloads of a session."""
    if is_list(one) and len(one) >= 2:
        return [{"input_tokens": one[0], "output_tokens": one[1]}]
    if not is_mapping(one):
        return [one]
    turns = one.get("conversations") or one.get("conversation")
    if is_list(turns):
        return _turns(turns)
    payloads = one.get("payloads", [one["payload"]] if is_list(one.get("payload")) else one.get("payload"))
    if is_list(payloads):
        return [_payload(each) for each in payloads]
    return [one]


def _turns(turns: Sequence[Any]) -> list[Any]:
    """A request a pair of turns: what was said before it, and the answer."""
    result, before = list[Any](), 0.0
    for at, turn in enumerate(turns):
        length = len(str(turn.get("value", turn.get("content", "")))) / CHARACTERS if is_mapping(turn) else 0.0
        if at % 2:
            result.append({"input_tokens": max(round(before), 1), "output_tokens": max(round(length), 1)})
        before += length
    return result


def _payload(node: Any) -> Any:
    """Lengths of one payload of AIPerf: its text, and the tokens that it asks for at most."""
    if not is_mapping(node):
        return node
    said = node.get("messages") or [{"content": node.get("prompt", node.get("text", ""))}]
    texts = [one.get("content", "") for one in said if is_mapping(one)] if is_list(said) else []
    output_tokens = next(
        (node[key] for key in ("max_completion_tokens", "max_tokens", "min_tokens") if key in node), None
    )
    length = sum(len(str(one)) for one in texts) / CHARACTERS
    return {"input_tokens": max(round(length), 1)} | (
        {"output_tokens": output_tokens} if output_tokens is not None else {}
    )


def _counts(values: Sequence[Any], column: str, what: str) -> np.ndarray:
    """Whole numbers of tokens."""
    result = np.empty(len(values))
    for at, value in enumerate(values):
        number = _float(value)
        if number is None or not 0 <= number <= 1e12:
            raise ConfigError(
                f"{what}, request {at + 1}: {column} = {_short(value)} is no number of tokens from 0 to 1e12"
            )
        result[at] = number
    return result.astype(int)


def _float(value: Any) -> float | None:
    """A finite number, None of anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if np.isfinite(number) else None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
