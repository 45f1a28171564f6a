"""Power of served models in steady decoding: times and joules of an engine that chooses tokens by chance.

Clients of these tables ask for what models recommend, top-p: vLLM then sorts all scores of every sequence in every
step, with PyTorch where its other sampler was not chosen (vLLM pull request 11394: a fifth of the throughput).
A step takes what the engine's kernels take, and

    step_overhead_s + sampling_s words B + expert_layer_s layers with experts

with B sequences. Prompts, which the tables do not state, are `prompt_tokens` long. The four are fitted
(`validation.power_fit`) and kept in `conf/calibration/frameworks/sampled.yaml`.
"""

import functools
import re
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ...config.groups import conf_dir
from ...core.errors import ConfigError
from ...core.yaml_io import read_yaml
from ...model.metrics.evaluation import drawn_j, priced_ops
from ...model.scenario import Scenario
from ...model.workloads import CommOp, ComputeOp, ContinuousServing
from .batches import batches, grouped, vectorised
from .hardware import board_cluster
from .served_jobs import Job, check_format, continuous_sheet, format_of, precision_of
from .served_models import model_of
from .served_rows import stored_serving

ENGINE = "vllm"  # of all these tables
IN_BLOCKS = r"deepseek|qwen3.*fp8"  # models published in 8 bits by blocks of 128 x 128 weights (their config.json)
KERNELS = ("kernel_slowdown",)  # of the engine's constants, as fitted on clients that take the likeliest token


class Sampled(NamedTuple):
    """Constants of choosing tokens by chance and of its host."""

    step_overhead_s: float = 0.0
    sampling_s: float = 0.0
    expert_layer_s: float = 0.0
    prompt_tokens: float = 1.0

    def added_s(self, words: np.ndarray, layers: np.ndarray) -> np.ndarray:
        """Seconds of a step beyond its kernels: by words that are chosen from, and layers with experts."""
        return self.step_overhead_s + self.sampling_s * words + self.expert_layer_s * layers


@functools.cache
def stored_sampled() -> Sampled:
    """Constants of token sampling as last fitted."""
    path = conf_dir() / "calibration" / "frameworks" / "sampled.yaml"
    data: Any = read_yaml(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return Sampled(**data.get(ENGINE, {}))


def words_of(jobs: "list[Job]") -> np.ndarray:
    """Words that each job's step chooses from: the vocabulary for every sequence."""
    return np.array([float(job.model.vocab) * job.sequences / job.replicas for job in jobs])


def expert_layers(jobs: "list[Job]") -> np.ndarray:
    """Layers with experts of each job's model."""
    return np.array([float(job.model.layers) * hasattr(job.model.feed_forward, "experts") for job in jobs])


class DrawnPower(NamedTuple):
    """Power drawn by jobs, a step each and a device: arrays of one length.

    Attributes:
        step_s: of all.
        energy_j: beyond idle power.
        kernels_s: of kernels and collectives.
        products, attended, others: FLOPs of matrix products, of attention, of all else.
        nbytes: read and written.
        comm_j: of links.
    """

    step_s: np.ndarray
    energy_j: np.ndarray
    kernels_s: np.ndarray
    products: np.ndarray
    attended: np.ndarray
    others: np.ndarray
    nbytes: np.ndarray
    comm_j: np.ndarray


def job(row: Any) -> Job:
    """The engine of a row: attention on all devices of a replica, whether experts are cut or spread over them.

    Raises:
        ConfigError: its device, model, number format or layout is not known.
    """
    if row.num_gpus % row.dp:
        raise ConfigError(f"{row.dp} replicas do not divide {row.num_gpus} devices")
    model = model_of(row.model)
    named = format_of(row.weight_precision, row.model, model)
    blocks = named == "fp8" and bool(re.search(IN_BLOCKS, row.model.lower()))
    result = Job(
        board_cluster(row.gpu, ENGINE, blocks), model, named, row.num_gpus / row.dp, 1.0, row.dp,
        False, max(row.avg_batch_size, 1.0), 1.0, max(row.avg_output_tokens, 2.0), ENGINE,
    )  # fmt: skip
    check_format(result)
    return result


def _loads(one: Scenario):
    """Fields of `DrawnPower`, from the operations as they are priced."""
    job, layout = one.workload, one.layout
    assert isinstance(job, ContinuousServing)
    priced, often = priced_ops(one), job.repeats(layout)
    timeline = job.timeline(priced, layout)
    board, energy = one.cluster.accelerator.board, drawn_j(one.cluster, timeline)
    none = jnp.asarray(0.0)
    flops = {"compute": none, "attention": none, "vector": none}
    kernels, nbytes, links = none, none, none
    for op, cost in priced:
        if isinstance(op, ComputeOp):
            times = often[op.phase]
            kernels = kernels + times * cost.time_s
            part = op.number_format if op.number_format in flops else "compute"  # classes of weights have their own
            flops[part] = flops[part] + times * op.count * op.work.flops
            nbytes = nbytes + times * op.count * op.work.nbytes
        elif isinstance(op, CommOp):
            clocks = 0.0 if board is None else board.working_w * cost.time_s
            kernels, links = kernels + often[op.phase] * cost.time_s, links + often[op.phase] * (cost.energy_j - clocks)
    steps = timeline.tokens / (layout.plan.micro_batch * layout.dp)  # that a whole answer stands for
    return tuple(value / steps for value in (timeline.time_s, energy, kernels, *flops.values(), nbytes, links))


_priced = vectorised(_loads)


def drawn(jobs: list[Job], sampled: Sampled) -> DrawnPower:
    """Times and energies of jobs.

    Raises:
        ConfigError: a device lacks a number format.
    """
    engine = stored_serving().get(ENGINE, {})
    added = {name: engine[name] for name in KERNELS if name in engine} | sampled._asdict()
    scenarios = [
        continuous_sheet(one._replace(input_tokens=sampled.prompt_tokens), added, energies=True) for one in jobs
    ]
    return DrawnPower(*grouped(batches(scenarios), _priced))


def formats(job: Job) -> tuple[str, str]:
    """Number formats of products and of attention."""
    precision = precision_of(job)
    return precision.compute, precision.attention
