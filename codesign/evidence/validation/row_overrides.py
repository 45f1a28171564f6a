"""Overrides of measured rows: the device and the cluster that it stood in, the job, the model."""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ...config import scenario_from_config
from ...config.groups import aliases, conf_dir, plain_name
from ...config.model_names import model_option
from ...core import fields
from ...core.errors import ConfigError, suggestion
from ...model.hardware import AbstractKernel
from ...model.metrics import Metrics, cache_room, cache_tokens, evaluate
from ...model.scenario import Cluster, Scenario
from ...model.workloads import DenseFeedForward, GroupedQueryAttention, Transformer
from ...model.workloads.continuous import AbstractContinuousServing, SupportedLayouts
from ..calibration.constants import REFERENCE, build
from ..calibration.gpus import accelerator_of, accelerators
from .measured_kernels import left_out
from .vectorise import Form, Sheet, anonymous, batches, form_of, grouped, vectorised

__all__ = [
    "RUNS", "PricedRun", "accelerator_option", "board_cluster", "command", "configured_model",
    "left_out_cluster", "measured_cluster", "megatron_model", "metrics_of", "model_of", "mpt_model",
    "option_of", "predicted", "scenarios_of",
]  # fmt: skip


# Measured runs as scenarios: the overrides of a row, as on the command line, and what `evaluate` says of them.
#
#     codesign evaluate accelerator=h100_sxm model=llama31_70b workload=at_rate framework=vllm plan.tp=4 ...
#
# Rows that differ in numbers alone are one composed scenario with other numbers in their places, priced together.


RUNS = "runs"
"""A metric beside those of `evaluate`: 1 where the design fits and keeps the rules of its workload, else 0."""
ROUNDING = 1e-9
AVERAGED = ("plan.micro_batch",)
"""Numbers that a command line takes whole, and a table states as a mean."""
OF_CLIENTS = "workload.clients."
"""Beginning of what no file states of a workload without an engine, whose clients are those of its class."""
OF_MEMORY = {"peak_memory_bytes", "fits", "cache_room_bytes", "cache_tokens"}


class PricedRun(NamedTuple):
    """Choices of a row: options and words, which make a structure, and numbers by their dotted path."""

    chosen: tuple[str, ...]
    numbers: dict[str, float]

    def overrides(self) -> list[str]:
        """Overrides of the run as given on the command line."""
        return [*self.chosen, *(f"{path}={value:.17g}" for path, value in self.numbers.items())]


def command(run: PricedRun) -> str:
    """The command that prints what is predicted of a run."""
    return " ".join(["codesign evaluate", *run.overrides()])


def predicted(runs: Sequence[PricedRun], metrics: Sequence[str], *, named: bool = False) -> dict[str, np.ndarray]:
    """Metric -> what the model says of each run, in SI units; NaN where its workload has no such metric.

    Args:
        runs: what is priced.
        metrics: of `evaluate`; times and rates alone unless `named`.
        named: keep the names of devices and models, and the layouts that an engine runs: joules, dollars and `RUNS` are
            then known, and each is a program.

    Raises:
        ConfigError: a run that cannot be composed.
    """
    result = grouped(batches(scenarios_of(runs, named=named)), metrics_of(*metrics))
    return dict(zip(metrics, result, strict=True))


def scenarios_of(runs: Sequence[PricedRun], *, named: bool = False, energies: bool = False) -> list[Sheet]:
    """Scenarios of runs, composed once for each structure, as `batches` takes them.

    Args:
        runs: what is priced.
        named: keep the names of devices and models.
        energies: joules of arithmetic, which names bring, without them.

    Raises:
        ConfigError: a run that cannot be composed.
    """
    result = list[Sheet]()
    for run in runs:
        key = (run.chosen, tuple(run.numbers), named, energies)
        if key not in _forms:
            client_numbers = {path: value for path, value in run.numbers.items() if path.startswith(OF_CLIENTS)}
            others = {path: value for path, value in run.numbers.items() if path not in client_numbers}
            others |= {path: float(int(others[path])) for path in AVERAGED if path in others}
            one = fields.replace(scenario_from_config(*run._replace(numbers=others).overrides()), client_numbers)
            _forms[key] = form_of(one if named else _unnamed(one, energies), key[1])
        result.append(_forms[key].with_numbers(run.numbers))
    return result


_forms: dict[tuple[Any, ...], Form] = {}


def _unnamed(one: Scenario, energies: bool = False) -> Scenario:
    """Copy with the same numbers under no names, so that rows of all devices and models are few programs."""
    work: Any = one.workload
    cluster, precision = anonymous(one.cluster, work.precision, energies=energies, sees=work.model.vision is not None)
    plain: dict[str, Any] = {"precision": precision, "model": replace(work.model, name="")}
    if isinstance(work, AbstractContinuousServing):  # which layouts an engine runs is a rule, and no time
        plain["layouts"] = SupportedLayouts()
    return replace(one, cluster=cluster, workload=replace(work, **plain))


def memory_of(one: Scenario, result: Metrics) -> dict[str, Any]:
    """Metrics of memory: room for a cache and peak of a device, tokens of an engine, 1 where everything fits."""
    near = [nbytes for name, nbytes in result.memory_bytes.items() if name.startswith("hbm/")]
    shares = [share for name, share in result.usage.items() if name in ("hbm", "hbm.engine", "ddr")]
    fits = jnp.stack([jnp.asarray(share <= 1 + ROUNDING) for share in shares]).all()
    metrics = {"peak_memory_bytes": sum(near[1:], near[0]), "fits": jnp.where(fits, 1.0, 0.0)}
    if "hbm/kv_cache" in result.memory_bytes:
        layout = one.workload.laid_out(one.layout)
        room = cache_room(one, layout, result.memory_bytes)
        metrics["cache_room_bytes"] = room
        if isinstance(one.workload, AbstractContinuousServing):
            metrics["cache_tokens"] = cache_tokens(one, layout, room)
    return metrics


def metrics_of(*metrics: str) -> Callable[[Scenario], tuple[np.ndarray, ...]]:
    """Vectorised function from stacked scenarios to these metrics."""
    if metrics not in _programs:

        def priced(one: Scenario) -> tuple[Any, ...]:
            result = evaluate(one)
            most = [*result.usage.values(), *(1 + value for value in result.violations.values())]
            runs = jnp.stack([jnp.asarray(value <= 1 + ROUNDING) for value in most]).all()
            result.extra[RUNS] = jnp.where(runs, 1.0, 0.0)
            if OF_MEMORY & set(metrics):
                result.extra.update(memory_of(one, result))
            return tuple(result.extra.get(name, getattr(result, name, jnp.asarray(jnp.nan))) for name in metrics)

        _programs[metrics] = vectorised(priced)
    return _programs[metrics]


_programs: dict[tuple[str, ...], Callable[[Scenario], tuple[np.ndarray, ...]]] = {}


# Models of published training runs: by their numbers, or of the configuration.


MPT_SHAPES = {  # hidden, heads, layers: the published configurations of the MPT family
    "125m": (768, 12, 12),
    "350m": (1024, 16, 24),
    "760m": (1536, 12, 24),
    "1b": (2048, 16, 24),
    "3b": (2560, 20, 32),
    "7b": (4096, 32, 32),
    "13b": (5120, 40, 40),
    "30b": (7168, 56, 48),
    "70b": (8192, 64, 80),
}


def megatron_model(row: Any) -> Transformer:
    """GPT with learned positions as Megatron trained it: unfused attention and loss, GELU, dropout, tied embeddings."""
    heads = float(row.num_heads)
    attention = GroupedQueryAttention(
        heads, heads, float(row.hidden) / heads, causal=0.0, fused=False, separate_projections=False
    )
    feed_forward = DenseFeedForward(4.0 * float(row.hidden))
    vocab = float(getattr(row, "vocab", 51200.0))
    return Transformer(
        name="gpt", hidden=float(row.hidden), layers=float(row.num_layers), attention=attention,
        feed_forward=feed_forward, vocab=vocab, tied_embeddings=1.0, norm_vectors=2.0, dropout=True,
        fused_loss=False,
    )  # fmt: skip


def mpt_model(size: str) -> Transformer:
    """A model of the MPT family.

    Raises:
        ConfigError: a size that is not known.
    """
    if size not in MPT_SHAPES:
        raise ConfigError(f"MPT size {size!r} is not known")
    hidden, heads, layers = (float(x) for x in MPT_SHAPES[size])
    attention = GroupedQueryAttention(heads, heads, hidden / heads, causal=1.0)
    return Transformer(
        name=f"mpt_{size}", hidden=hidden, layers=layers, attention=attention,
        feed_forward=DenseFeedForward(4 * hidden), vocab=50368.0, tied_embeddings=1.0, norm_vectors=1.0,
    )  # fmt: skip


@functools.cache
def configured_model(option: str) -> Transformer:
    """A model of the configuration."""
    return scenario_from_config("workload=training", f"model={option}", "plan=data_parallel").workload.model


# Models of the configuration that a table of served models names.


SEES = re.compile(r"(^|[-/_ ])(VL|Omni)([-_ ]|$)", re.IGNORECASE)
"""Models that were measured with pictures in their prompts, of which tables say neither number nor size."""


def option_of(name: str) -> str:
    """The option of `model` that a published name means.

    Raises:
        ConfigError: none, or one that no number format of a table describes.
    """
    option = model_option(name)
    if option is None:
        raise ConfigError(f"model {name!r} has no configuration")
    if SEES.search(name):
        raise ConfigError(f"model {name!r} was measured with pictures, of which the table says neither number nor size")
    return option


def model_of(name: str) -> Transformer:
    """The model that a published name means.

    Raises:
        ConfigError: as `option_of`.
    """
    return configured_model(option_of(name))


# Configuration of a measured device, and of the cluster that it stood in.


def accelerator_option(device: str, relatives: bool = True) -> str:
    """The accelerator a device name of a table means: by alias, else by the longest alias that it begins with.

    Args:
        device: as a table names it.
        relatives: take the one whose constants suit a device that is not described, too.

    Raises:
        ConfigError: nothing of that name, and no relative.
    """
    options, wanted = aliases(), plain_name(device)
    plain = {plain_name(alias): option for alias, option in options.items()}
    if wanted in plain:
        return plain[wanted]
    words = re.split(r"[^A-Za-z0-9]+", device.strip())
    for count in range(len(words) - 1, 0, -1):  # `NVIDIA H100 80GB HBM3`
        if (begins := plain_name("".join(words[:count]))) in plain:
            return plain[begins]
    matches = [one for one in plain if wanted.startswith(one) and not wanted[len(one)].isdigit()]
    if matches:
        return plain[max(matches, key=len)]
    relative = accelerator_of(device) if relatives else None
    if relative is None:
        raise ConfigError(f"gpu {device!r} is no accelerator of conf/accelerator{suggestion(device, options)}")
    return relative


@functools.cache
def measured_cluster(device: str) -> Cluster:
    """A cluster of the device with its native scale-up fabric and the scale-out network of its generation."""
    option = accelerator_option(device)
    network = "infiniband_hdr" if option.startswith("a100") else "infiniband_ndr"
    return scenario_from_config(f"accelerator={option}", f"scale_out={network}").cluster


@functools.cache
def board_cluster(device: str) -> Cluster:
    """A cluster of the device with what its board was found to draw, where it was measured."""
    option = accelerator_option(device)
    measured = (conf_dir() / "calibration" / "power" / f"{option}.yaml").is_file()
    words = [f"accelerator={option}", *([f"+calibration/power={option}"] if measured else [])]
    return scenario_from_config(*words).cluster


@functools.cache
def left_out_cluster(device: str) -> Cluster:
    """The cluster of a device whose kernels take what relatives would have lent it; its collectives stay its own.

    Raises:
        ConfigError: nothing of that name, or no relative was measured.
    """
    cluster, owner = measured_cluster(device), accelerator_of(device) or accelerator_option(device)
    kernels: dict[str, dict[str, AbstractKernel]] = {}
    described = owner in accelerators()  # of others neither they nor relatives were measured
    for kind, formats in cluster.accelerator.kernels.items() if described else ():
        entries = {name: left_out(owner, REFERENCE, kind, name) for name in formats}
        lent = {name: _on_chip(build(entry), cluster, kind, name) for name, entry in entries.items() if entry}
        if lent:
            kernels[kind] = lent
    if not kernels:
        raise ConfigError(f"gpu {device!r} has no measured relative")
    return replace(cluster, accelerator=replace(cluster.accelerator, kernels=kernels))


def _on_chip(kernel: AbstractKernel, cluster: Cluster, kind: str, number_format: str) -> AbstractKernel:
    chip = getattr(cluster.accelerator.kernel(kind, number_format), "chip", None)
    if chip is None or not hasattr(kernel, "chip"):
        return kernel
    return eqx.tree_at(lambda k: k.chip, kernel, chip)
