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

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from ..core.errors import ConfigError, suggestion
from ..core.yaml_io import is_mapping
from . import exchanges
from .construct import parameters, resolve
from .groups import conf_dir, read_yaml

KEYS = ("kernels", "shared_kernels", "all_reduce", "exchange", "fused_floor", "clients", "layouts")
CLIENTS = {"_target_": "codesign.model.workloads.Lockstep"}
LAYOUTS = {"_target_": "codesign.model.workloads.SupportedLayouts"}
MEASURED = "codesign.model.networks.collectives.Measured"
LINK = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
MODEL = "workload.model"
SENT = {"experts": "feed_forward.experts", "top_k": "feed_forward.top_k", "hidden": "hidden"}
FUSED = ("fp8", "fp4")
GROUPED, WIDE = "moe_gemm", "bf16"
KEPT = ("elementwise",)  # of the accelerator
OVERLAPS = "overlaps"  # shares of communication that a framework hides: defaults of `plan.*_overlap`
HIDDEN = ("tp", "cp", "ep", "dp", "pp", "offload")
SLOWDOWNS = "slowdowns"  # of a framework that trains
CONSTANT = "request_overhead_s"  # of an engine: who has it serves
CHANGING = frozenset(("engine", OVERLAPS, SLOWDOWNS))  # keys of a workload without which `with_engine` changes nothing


def with_engine(config: DictConfig) -> DictConfig:
    """The configuration with what its serving engine changes, and without the words that name it.

    Raises:
        ConfigError: a key that says nothing, or a framework of another kind of workload.
    """
    _overlap(config)
    engine, trained = (OmegaConf.select(config, f"workload.{key}") for key in ("engine", SLOWDOWNS))
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
    own, generation = str(accelerator.get("name", "")), str(accelerator.get("generation", ""))
    relatives = [name for side in accelerator.get("relatives") or () for name in side]
    for name in (own, *(other for other in relatives if _generation(other) == generation)):
        path = conf_dir() / folder / f"{engine}_{name}.yaml"
        if path.is_file():
            return read_yaml(path)
    return None


def _exchange(library: str, config: DictConfig) -> tuple[dict[str, Any], dict[str, str]]:
    """The all-to-all of a library inside one domain, and where its numbers are from.

    Raises:
        ConfigError: no such library.
    """
    link = _positive(config, LINK, exchanges.LINK)
    usual = exchanges.Tokens()
    tokens = exchanges.Tokens(*(_positive(config, f"{MODEL}.{SENT[name]}", getattr(usual, name)) for name in SENT))
    curves = exchanges.all_to_all(library, link, tokens)
    if not curves:
        known = sorted({name for name, *_ in exchanges.known()})
        raise ConfigError(f"workload.engine: no exchange {library!r}{suggestion(library, known)}")
    at = f"{library} in {exchanges.FILE}, means of dispatch and combine"
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
        if kind in KEPT:
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
