"""Serving engines on a machine: their own kernels and all-reduce, where these were measured.

A file of `framework` names them under `workload.engine`: `kernels` and `all_reduce` are the first words of files in
`calibration/frameworks` and `collective/custom`, whose last word is the accelerator. One that was not measured takes
the files of the first of its `relatives` of the same generation that was, or keeps its own. With `fused_floor` what
tables count as a launch of its own, the quantisation of a product's input, is part of the pass before: the floor of 8
and 4 bit products is then at most so many times that of 16 bits. A grouped product of 8 or 4 bits that reaches fewer
FLOP/s than the same engine's of 16 bits was measured where nobody had tuned its tiles (vLLM's on H100 takes 2.6 times
as long as 16 bits, while models served in 8 bits are as fast as other kernels say): what stands in for it runs.

`exchange` is a library of `calibration/exchange.csv` that sends tokens to experts inside the scale-up domain, in place
of the collective library's all-to-all, whose start grows with the ranks (NCCL on GB200: 57 us at 8, 627 at 64): one
start and shares of the link, means of what dispatch and combine take on such a link (`exchanges`).

`shared_kernels` are grouped products that another engine runs too and was measured with: generation -> format ->
engine. On Blackwell TensorRT-LLM's default is its own kernels [trtllm_gpt_oss], which FlashInfer brings to vLLM. Which
ones its rows of the table are of is not stated; steps of the models that it serves are nearer to vLLM's (assumed).

`layouts` says which layouts it can run (`SupportedLayouts`): others break a rule of the plan and are in no space.

`clients` says how clients of a closed loop wait for each other there, of a workload that knows (`Lockstep`).

Passes over memory stay the accelerator's: what tables hold of an engine's is one kernel, the quantisation of an input,
which some write several times slower than a stream; norms, residual sums and activations are other kernels.
"""

import csv
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from omegaconf import DictConfig, OmegaConf, open_dict

from ..core.errors import ConfigError, suggestion
from ..core.json_yaml import is_mapping
from ..core.resources import conf_dir
from .construct import parameters, resolve
from .groups import read_yaml

__all__ = [
    "BYTES", "CHANGING", "COUNTED", "EXCHANGE_KEYS", "FIELD", "FILE", "MEMBERS", "EngineStart", "Exchange",
    "engine_overrides", "fitted_exchanges", "reached", "sglang_share", "with_engine",
]  # fmt: skip


# Time that libraries take to dispatch tokens to experts and combine the results, and a machine's all-to-all for it.
#
# t = start (link / LINK)^start_power + expert_s E + bytes / rate + token_s n / E
# rate = rate_bytes_per_s (link / LINK)^link_power (processors / 24)^processors_power
#
# start is one of two, by the devices of a node (8, or 4 as in racks whose nodes are small); E are the experts of the
# model, n the copies of tokens that a rank sends: kernels of low latency begin by telling every expert its count, and
# what arrives at one is taken in one by one. link is a rank's scale-up bandwidth; the powers lead from one generation
# to the next and hold between the links that were measured: beyond, starts stay and rates are the same share of the
# link. bytes are those that leave a rank, and how often a token is among them is `counted`: once for each rank it
# goes to, each expert, or each node. The power of processors counts where a library says how many it takes, else 24
# are. Constants are of one library, phase, format and reach, in `conf/calibration/exchange.csv`, fitted by `codesign
# calibrate` (`evidence.calibration.exchange`).
#
# Assumes: tokens spread evenly over experts. A format is a label: what a kernel sends under it is in its constants.


FILE = "exchange.csv"

EXCHANGE_LINK, NARROWEST = 900e9, 450e9  # bytes/s that rates and starts are stated at, and the least that was measured

USUAL_PROCESSORS = 24.0
MOST_PROCESSORS = 1.5  # what more than the usual number brings at most
COUNTED = ("ranks", "copies", "nodes")

EXCHANGE_KEYS = ["library", "phase", "format", "across"]

BYTES = {"bfloat16": 2.0, "fp8": 1.0 + 4 / 128, "nvfp4": 0.5 + 1 / 16, "fp4": 0.5 + 1 / 16, "default": 2.0}
"""Bytes of an element: 8 bits have a scale of 4 bytes to 128 elements, 4 bits one of a byte to 16; the last is not
stated by its source."""
MEMBERS = (2, 4, 8, 16, 64)  # where the curves of a library's collective have their knots
MOST_RATIO = 4.0  # of a rate over the link, that such a collective may have


class Exchange(NamedTuple):
    """Constants of one library, phase, format and reach."""

    start_8_s: float
    start_4_s: float
    expert_s: float
    rate_bytes_per_s: float
    token_s: float
    processors_power: float
    start_power: float
    link_power: float
    counted: str

    def start_s(self, link: Any, node: Any) -> np.ndarray:
        """Before the first byte and without the part of the experts, over links of so many bytes/s."""
        start = np.where(np.less(node, 8), self.start_4_s, self.start_8_s)
        return np.asarray(start * _wider(link) ** self.start_power)

    def rate(self, link: Any, processors: Any = USUAL_PROCESSORS) -> np.ndarray:
        """Bytes/s of a rank whose library takes so many processors."""
        wider = _wider(link)
        rate = self.rate_bytes_per_s * wider**self.link_power * np.asarray(link) / (EXCHANGE_LINK * wider)
        more = (np.asarray(processors) / USUAL_PROCESSORS) ** self.processors_power
        return np.asarray(rate * np.minimum(more, MOST_PROCESSORS))

    def seconds(self, rows: Any) -> np.ndarray:
        """Seconds of an exchange, from columns `link` (bytes/s), `node` (devices of one), `processors`, `experts`,
        `arrivals` (copies that a rank sends to one expert) and the bytes of a rank: `ranks_bytes`, `copies_bytes` or
        `nodes_bytes`."""
        start, rate = self.start_s(rows["link"], rows["node"]), self.rate(rows["link"], rows["processors"])
        return self.sum_s(rows, start, rate)

    def sum_s(self, rows: Any, start_s: np.ndarray, rate: np.ndarray) -> np.ndarray:
        """Seconds of an exchange from its start and its rate."""
        sent = rows[f"{self.counted}_bytes"] / rate + self.token_s * rows["arrivals"]
        return np.asarray(start_s + self.expert_s * rows["experts"] + sent, dtype=float)


def _wider(link: Any) -> np.ndarray:
    return np.asarray(np.clip(link, NARROWEST, EXCHANGE_LINK) / EXCHANGE_LINK)


def reached(parts: Any, top_k: Any) -> Any:
    """Ranks or nodes that a token goes to: each is missed by every one of its experts, or it is not."""
    return parts * (1 - (1 - 1 / parts) ** top_k)


@lru_cache
def fitted_exchanges() -> dict[tuple[str, str, str, bool], Exchange]:
    """Constants by library, phase, format and whether nodes are left, as last fitted."""
    path = conf_dir() / "calibration" / FILE
    if not path.is_file():
        return {}
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    *numbers, counted = Exchange._fields
    return {
        (row["library"], row["phase"], row["format"], row["across"] == "True"): Exchange._make(
            (*(float(row[name]) for name in numbers), row[counted])
        )
        for row in rows
    }


class Tokens(NamedTuple):
    """Tokens that a model sends to its experts; DeepSeek-V3, of which most rows are, where none is known."""

    experts: float = 256.0
    top_k: float = 8.0
    hidden: float = 7168.0


def all_to_all(library: str, link: float, tokens: Tokens) -> dict[str, float]:
    """Start and share of the link of all copies of tokens, of 2 to 64 ranks: what a `Measured` all-to-all takes.

    Means of dispatch and combine, and of formats, inside one domain of nodes of 8; empty where the library is unknown.
    """
    mine = {key: one for key, one in fitted_exchanges().items() if key[0] == library and not key[3]}
    every = [(BYTES[form] * tokens.hidden, one) for (_, _, form, _), one in mine.items()]  # bytes of a copy, constants
    if not every:
        return {}
    start = sum(float(one.start_s(link, 8)) + one.expert_s * tokens.experts for _, one in every) / len(every)
    curves = {f"base_{n}_s": start for n in MEMBERS}
    for n in MEMBERS:
        counted = {"ranks": reached(n, tokens.top_k) / tokens.top_k, "copies": 1.0, "nodes": 1 / tokens.top_k}
        taken_in = ((counted[one.counted] / one.rate(link), one.token_s / tokens.experts / copy) for copy, one in every)
        a_byte = sum(float(sent) + one_by_one for sent, one_by_one in taken_in) / len(every)
        curves[f"ratio_{n}"] = min(1 / (a_byte * link), MOST_RATIO)
    return curves


# Share of a device's memory that an engine takes, and the step that it sizes its activations by, as overrides.


FIELD = "workload.engine_memory"
GIB = 2**30
UNSAID = {"vllm": 0.9, "vllm_0_21": 0.92, "trtllm": 0.9}
"""Share that an engine takes where nothing is said. Source: [vllm_source], [trtllm_source]."""
LARGE_DEVICE = 70 * GIB
DEFAULT_STEP = {True: (1024, 8192), False: (256, 2048)}
"""Large device -> sequences and tokens of a step of vLLM where nothing is said. Source: [vllm_source], arg_utils.py."""


class EngineStart(NamedTuple):
    """Start of an engine: option of `engine_memory`, share (0: unsaid), device, ranks and tokens of a step.

    sequences, tokens: whether it is said how many a step has.
    """

    engine: str
    utilisation: float
    device: str
    capacity_bytes: float
    tp: float = 1.0
    pp: float = 1.0
    token_budget: float = 0.0
    sequences: bool = True
    tokens: bool = True


def engine_overrides(start: EngineStart) -> list[str]:
    """Overrides that a start means."""
    share = start.utilisation or (sglang_share(start) if start.engine == "sglang" else UNSAID[start.engine])
    result = [f"engine_memory={start.engine}", f"{FIELD}.utilisation={share:g}"]
    if start.engine.startswith("vllm"):
        large = start.capacity_bytes >= LARGE_DEVICE and not start.device.startswith("a100")
        sequences, tokens = DEFAULT_STEP[large]
        result += [] if start.sequences else [f"{FIELD}.sequences={sequences}"]
        result += [] if start.tokens else [f"{FIELD}.tokens={tokens}"]
    return result


def sglang_share(start: EngineStart) -> float:
    """Share of weights and cache that SGLang chooses: what is left of a device beside its estimate of the rest.

    Source: [sglang_source]: 512 MiB, 1.5 MiB a token of a chunk, 2 MiB a sequence of the largest graph, 1 GiB for eight
    ranks, together at least 10 GiB on devices of more than 60 GiB.
    """
    graphs = 256 if start.tp < 4 else 512
    aside = 512 + 1.5 * max(start.token_budget, 2048) + 2 * graphs + start.tp * start.pp / 8 * 1024
    aside = max(aside, 10 * 1024) if start.capacity_bytes > 60 * GIB else aside
    return round(max(1 - aside * 2**20 / start.capacity_bytes, 0.1), 3)


KEYS = ("kernels", "shared_kernels", "all_reduce", "exchange", "fused_floor", "clients", "layouts")
CLIENTS = {"_target_": "codesign.model.workloads.Lockstep"}
LAYOUTS = {"_target_": "codesign.model.workloads.SupportedLayouts"}
MEASURED = "codesign.model.networks.collectives.Measured"
LINK = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
MODEL = "workload.model"
SENT = {"experts": "feed_forward.experts", "top_k": "feed_forward.top_k", "hidden": "hidden"}
FUSED = ("fp8", "fp4")
GROUPED, WIDE = "moe_gemm", "bf16"
SHARED_KERNELS = ("elementwise",)  # of the accelerator
OVERLAPS = "overlaps"  # shares of communication that a framework hides: defaults of `plan.*_overlap`
HIDDEN = ("tp", "cp", "ep", "dp", "pp", "offload")
SLOWDOWNS = "slowdowns"  # of a framework that trains
CONSTANT = "request_overhead_s"  # of an engine: who has it serves
ERRORS = "framework_errors"  # of a framework that trains, too
CHANGING = frozenset(
    ("engine", OVERLAPS, SLOWDOWNS, ERRORS)
)  # keys of a workload without which `with_engine` changes nothing


def with_engine(config: DictConfig) -> DictConfig:
    """The configuration with what its serving engine changes, and without the words that name it.

    Raises:
        ConfigError: a key that says nothing, or a framework of another kind of workload.
    """
    _overlap(config)
    engine, *of_training = (OmegaConf.select(config, f"workload.{key}") for key in ("engine", SLOWDOWNS, ERRORS))
    trained = next((value for value in of_training if value is not None), None)
    if engine is None and trained is None:
        return config
    workload = resolve(config.workload.get("_target_"), "workload._target_")
    if trained is not None and CONSTANT in parameters(workload):
        raise ConfigError(
            f"framework: a training framework runs no {workload.__name__};"
            " allowed: vllm, vllm_async, sglang, trtllm or none"
        )
    if engine is None:
        return config
    if CONSTANT not in parameters(workload):
        raise ConfigError(f"framework: a serving engine runs no {workload.__name__}; allowed: a workload that serves")
    with open_dict(config):
        del config.workload["engine"]
    named = dict(engine) if isinstance(engine, DictConfig) else {}
    for key in named if named else ("engine",):
        if key not in KEYS:
            raise ConfigError(f"workload.engine: no key {key!r}{suggestion(str(key), KEYS)}")
    if named.get("layouts") is not None and "layouts" in parameters(workload):
        with open_dict(config):
            config.workload.layouts = OmegaConf.merge(LAYOUTS, named["layouts"], config.workload.get("layouts") or {})
    if named.get("clients") is not None and "clients" in parameters(workload):
        with open_dict(config):
            config.workload.clients = OmegaConf.merge(CLIENTS, named["clients"], config.workload.get("clients") or {})
    accelerator = config.cluster.accelerator
    kernels = _file("calibration/frameworks", str(named.get("kernels")), accelerator)
    if kernels is not None:
        with open_dict(config):
            accelerator.kernels = _over(accelerator.kernels, _tuned(kernels, accelerator.peak_flops_per_s))
    if named.get("shared_kernels") is not None:
        with open_dict(config):
            _share(accelerator, OmegaConf.to_container(engine, resolve=True))
    wires = config.cluster.network.scale_up.collectives
    shared = _file("collective/custom", str(named.get("all_reduce")), accelerator)
    if shared is not None and OmegaConf.select(wires, "all_reduce._target_") == MEASURED:
        with open_dict(config):
            wires.all_reduce = shared["all_reduce"]
            wires.provenance = OmegaConf.merge(
                wires.get("provenance") or {}, {"all_reduce": shared["provenance"]["all_reduce"]}
            )
    if named.get("exchange") is not None and OmegaConf.select(wires, "all_to_all._target_") == MEASURED:
        with open_dict(config):
            wires.all_to_all, origin = _exchange(str(named["exchange"]), config)
            wires.provenance = OmegaConf.merge(wires.get("provenance") or {}, {"all_to_all": origin})
    if named.get("fused_floor") is not None:
        _fuse(accelerator.kernels, float(named["fused_floor"]))
    return config


def _overlap(config: DictConfig) -> None:
    """Put what a framework hides behind work into the plan, where a study does not say it.

    Raises:
        ConfigError: a key that is no kind of communication, or a value that is no share.
    """
    said = OmegaConf.select(config, f"workload.{OVERLAPS}")
    if said is None:
        return
    with open_dict(config):
        del config.workload[OVERLAPS]
        if not isinstance(said, DictConfig):
            raise ConfigError(f"workload.{OVERLAPS} = {said!r} must be a mapping with {', '.join(HIDDEN)}")
        for key, share in said.items():
            if key not in HIDDEN:
                raise ConfigError(f"workload.{OVERLAPS}: no key {key!r}{suggestion(str(key), HIDDEN)}")
            if not isinstance(share, int | float) or not 0 <= share <= 1:
                raise ConfigError(f"workload.{OVERLAPS}.{key} = {share!r} is no share from 0 to 1")
            if f"{key}_overlap" not in config.plan:
                config.plan[f"{key}_overlap"] = share


def _file(folder: str, engine: str, accelerator: DictConfig) -> Any:
    """Read what was measured of an engine on an accelerator or a relative of its generation; None if nothing was."""
    device, generation = str(accelerator.get("name", "")), str(accelerator.get("generation", ""))
    relatives = [name for side in accelerator.get("relatives") or () for name in side]
    for name in (device, *(other for other in relatives if _generation(other) == generation)):
        path = conf_dir() / folder / f"{engine}_{name}.yaml"
        if path.is_file():
            return read_yaml(path)
    return None


def _exchange(library: str, config: DictConfig) -> tuple[dict[str, Any], dict[str, str]]:
    """The all-to-all of a library inside one domain, and where its numbers are from.

    Raises:
        ConfigError: no such library.
    """
    link = _positive(config, LINK, EXCHANGE_LINK)
    usual = Tokens()
    tokens = Tokens(*(_positive(config, f"{MODEL}.{SENT[name]}", getattr(usual, name)) for name in SENT))
    curves = all_to_all(library, link, tokens)
    if not curves:
        libraries = sorted({name for name, *_ in fitted_exchanges()})
        raise ConfigError(f"workload.engine: no exchange {library!r}{suggestion(library, libraries)}")
    at = f"{library} in {FILE}, means of dispatch and combine"
    return (
        {"_target_": MEASURED, "rounds": 1.0, "ramp": 0.0, **curves},
        {"source": "aiconfigurator", "at": at, "kind": "derived", "note": "fitted by `codesign calibrate`"},
    )


def _positive(config: DictConfig, path: str, usual: float) -> float:
    """A number above zero of the configuration; the usual one where none is there: ranges are checked later."""
    value = OmegaConf.select(config, path)
    try:
        number = float(value)
    except (TypeError, ValueError):
        return usual
    return number if 0 < number < float("inf") else usual


def _generation(name: str) -> str:
    path: Path = conf_dir() / "accelerator" / f"{name}.yaml"
    node: Any = read_yaml(path)["cluster"]["accelerator"] if path.is_file() else {}
    return str(node.get("generation", name))


def _tuned(kernels: dict[str, Any], peaks: Any) -> dict[str, Any]:
    """Without grouped products of few bits that are slower in arithmetic than those of 16."""
    formats = kernels.get(GROUPED, {})
    if WIDE not in formats or WIDE not in peaks:
        return kernels

    def flops(name: str) -> float:
        return float(formats[name].get("compute_ratio", 1.0)) * float(peaks[name])

    slow = {name for name in FUSED if name in formats and name in peaks and flops(name) < flops(WIDE)}
    return kernels | {GROUPED: {name: entry for name, entry in formats.items() if name not in slow}}


def _over(kernels: Any, mine: dict[str, Any]) -> Any:
    """Constants of an engine over those of the accelerator, a number format as a whole; 8 bits in blocks stand in."""
    result = OmegaConf.to_container(kernels)
    assert is_mapping(result)
    for kind, formats in mine.items():
        if kind in SHARED_KERNELS:
            continue
        old = result.get(kind, {})
        if kind != "provenance" and "fp8_block" in formats and "fp8" not in formats:
            formats = formats | {"fp8": formats["fp8_block"]}
        result[kind] = old | {name: entry for name, entry in formats.items() if _alike(old.get(name), entry)}
    return result


def _share(accelerator: DictConfig, engine: Any) -> None:
    """Take grouped products of some formats from the files of another engine, on generations where both run the same.

    Raises:
        ConfigError: no mapping of generations to one of formats to engines.
    """
    lenders = engine["shared_kernels"]
    if not all(is_mapping(value) for value in (lenders, *(lenders.values() if is_mapping(lenders) else ()))):
        raise ConfigError(f"workload.engine.shared_kernels = {lenders!r} is no generation: {{format: engine}}")
    for number_format, lender in lenders.get(str(accelerator.get("generation", "")), {}).items():
        file: dict[str, Any] = _file("calibration/frameworks", str(lender), accelerator) or {}
        measured: dict[str, Any] = file.get(GROUPED) or {}
        if number_format in measured and GROUPED in accelerator.kernels:
            accelerator.kernels[GROUPED][number_format] = measured[number_format]


def _alike(old: Any, new: Any) -> bool:
    """True if a kernel may take another's place: who chose another model of kernels keeps it."""
    return old is None or old.get("_target_") == new.get("_target_")


def _fuse(kernels: Any, floor: float) -> None:
    """Leave the quantisation of inputs to the pass before."""
    formats = kernels.get("gemm", {})
    for name in FUSED:
        if "bf16" in formats and "quantise_passes" in formats.get(name, {}):
            formats[name].t0_s = min(formats[name].t0_s, floor * formats["bf16"].t0_s)
            formats[name].quantise_passes = 0.0
