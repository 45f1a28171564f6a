"""Plain questions, `codesign serve` and `codesign train`: the studies that they stand for, and what was assumed.

A question becomes overrides of the same configuration that `codesign compare` takes, so that nothing is computed in a
second way; `--show-config` prints them.
"""

import argparse
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..config import available
from ..config.composition import admit
from ..config.device_counts import serving_flops_per_s
from ..core.errors import ConfigError, suggestion
from ..core.resources import conf_dir
from ..core.short_names import full_names
from ..core.units import DAY_S
from ..core.untrusted_io import read_text
from ..model.scenario import Scenario
from ..model.workloads.continuous import AbstractContinuousServing
from .candidates import PROOF, Candidate
from .plain_values import accelerators, count_of, days, model_overrides, number, rate

TIMES = {"ttft": "time to first token", "tpot": "time per output token", "e2e": "whole request"}
POINTS = ("", "p50", "p90", "p99")
GOALS = {"cost": "usd_per_million_tokens", "energy": "joules_per_token"}
FORMATS = ("bf16", "fp8")  # of weights, cache and arithmetic alike
PUBLISHED = "checkpoint"
POOLS = ("beside", "apart", "both")
SPACES = (
    ("disaggregated", "every_disaggregated_plan"),
    ("training", "every_training_plan"),
    ("", "every_serving_plan"),
)
"""Beginning of a workload's name -> space in which it is answered."""
INPUT, OUTPUT = "2048", "512"
HALF = 0.5  # of the draws in which a load is sustained where nobody asks for more
SEQUENCE, BATCH = "8192", "4M"
DEFAULT_AXES = (
    "space.plan.loss_chunks=[1,16], space.plan.offload_activations=[0,0.5],"
    " space.plan.reduce_grads_every_microbatch=[0,1], space.plan.schedule=[1f1b,zb_v]"
)
"""Fields of a training plan that `every_training_plan` leaves as they are, and values that make 16 times its plans."""
NO_RATE = "percentiles are of requests that come at a rate: add --rate 30/s"


@dataclass(frozen=True)
class Question:
    """A plain question in words, and the studies that answer it.

    text: one line; assumed: pairs of (what was taken, how to change it); candidates: those that differ in
    `varied`, each with its overrides but for the device count; counts: device counts that were asked for, empty where
    the demand decides; requests_per_s and tokens_per_s: the demand of serving and of training, 0 where there is none;
    batch: sequences of a step; seconds: how long the job lasts, 0 where it does not end; confidence: share of the draws
    in which limits are to be kept, 0: at the centre.
    """

    text: str
    assumed: tuple[tuple[str, str], ...]
    candidates: tuple[Candidate, ...]
    counts: tuple[int, ...]
    requests_per_s: float = 0.0
    tokens_per_s: float = 0.0
    batch: int = 0
    seconds: float = 0.0
    confidence: float = 0.0

    def flops_per_s(self, scenario: Scenario) -> float:
        """A bound from below on the arithmetic of matrix products that the demand asks for, FLOP/s.

        2 FLOPs a weight and token in serving, without the head, which few tokens of a prompt meet; 6 in training.
        """
        workload = scenario.workload
        if isinstance(workload, AbstractContinuousServing):
            return serving_flops_per_s(workload, self.requests_per_s)
        return 6 * float(workload.model.active_parameters()) * self.tokens_per_s

    @property
    def demand(self) -> bool:
        """True if a rate or a deadline decides the number of devices."""
        return self.requests_per_s > 0 or self.tokens_per_s > 0


def serving_question(options: argparse.Namespace) -> Question:
    """`codesign serve`: requests at a rate, or clients that wait for their answers, under limits of latency.

    Raises:
        ConfigError: a value that is none, or limits that the demand does not have.
    """
    model, devices = model_overrides(options.model), accelerators(options.on)
    limits, texts = _limits(options)
    timed = options.rate is not None or options.trace is not None
    if options.rate is not None and options.clients is not None:
        raise ConfigError("--rate and --clients exclude each other: requests at a rate, or clients that wait")
    if not timed and any("_p" in text for text in limits):
        raise ConfigError(NO_RATE)
    if not timed and options.pools != POOLS[0]:
        raise ConfigError("--pools: pools of their own are sized for a rate: add --rate 30/s")
    overrides = [*model, *limits, *_lengths(options)]
    assumed: list[tuple[str, str]] = []
    if options.trace is None:
        shown = f"{options.input or INPUT} tokens in, {options.output or OUTPUT} out, all alike"
        if options.input is None or options.output is None:
            assumed.append((shown, "--input, --output or --trace FILE"))
    per_s = 0.0
    if timed:
        stated = _rate_of(options.trace) if options.trace is not None else 0.0
        if options.rate is not None and stated:
            raise ConfigError(f"--trace {options.trace} says {stated:.4g} requests/s: leave out --rate")
        if options.rate is None and not stated:
            raise ConfigError(
                f"trace {options.trace!r} does not say when requests come, or all come at once: add --rate 30/s"
            )
        per_s = rate(options.rate) if options.rate is not None else stated
        if options.rate is not None:  # else the trace says it
            overrides.append(f"workload.arrivals_per_s={per_s!r}")
        if options.trace is None:
            assumed.append(("Poisson arrivals", "workload.arrival_cv=2, or --trace FILE"))
        what = f"{per_s:,.4g} requests/s"
        workloads = {"beside": ["at_rate"], "apart": ["disaggregated_at_rate"]}
        chosen = [name for kind in (POOLS[:2] if options.pools == "both" else [options.pools])
                  for name in workloads[kind]]  # fmt: skip
        if options.pools == POOLS[0]:
            assumed.append(("prompts computed beside decodes", "--pools apart or --pools both"))
    else:
        chosen, what = ["continuous"], "one replica at its best load"
        if options.clients is not None:
            what = f"{count_of(options.clients, '--clients'):g} clients that wait for their answers"
            overrides.append(f"space.plan.micro_batch=[{count_of(options.clients, '--clients'):g}]")
        else:
            assumed.append(("no demand: the cheapest replica", "--rate 30/s or --clients 64"))
    suffix, formats = _format(options, PUBLISHED)
    chosen = [f"{name}{suffix}" for name in chosen]
    overrides += formats
    confidence = _confidence(options)
    if timed and not confidence and not refuse_search(options.overrides):
        confidence = HALF
        assumed.append(("limits and load kept in half of the draws of the model's errors", "--confidence 0.9"))
    if options.format is None:
        assumed.append(("weights, cache and arithmetic in the formats that the model was published in", "--format"))
    assumed += _always(options)
    text = f"least {options.goal} of {options.model} on {', '.join(devices)}: {what}{texts}"
    overrides += _chosen(options)
    candidates = _candidates(devices, chosen, [*overrides, *_goal(options), *options.overrides])
    return Question(text, tuple(assumed), candidates, _counts(options), requests_per_s=per_s, confidence=confidence)


def training_question(options: argparse.Namespace) -> Question:
    """`codesign train`: so many tokens in so many days.

    Raises:
        ConfigError: a value that is none.
    """
    model, devices = model_overrides(options.model), accelerators(options.on)
    limits, texts = _limits(options)
    tokens, seconds = count_of(options.tokens, "--tokens"), days(options.days)
    sequence = int(count_of(options.sequence or SEQUENCE, "--sequence"))
    requested_batch = count_of(options.batch or BATCH, "--batch")
    batch = max(1, 2 ** round(math.log2(requested_batch / sequence)))
    steps = tokens / (batch * sequence)
    if steps < 1:
        least = f"{batch * sequence / 1e6:.3g}M"
        raise ConfigError(
            f"--tokens {options.tokens} is less than one step of {least} tokens (--batch); write 15T or 300B"
        )
    step_s = seconds / steps
    overrides = [
        *model, *limits, f"workload.sequence={sequence}", f"workload.global_batch={batch}",
        f"objective.limits.time_s={step_s!r}",
    ]  # fmt: skip
    assumed = []
    if options.sequence is None:
        assumed.append((f"sequences of {sequence:,} tokens", "--sequence"))
    assumed.append((f"{batch:,} sequences ({batch * sequence / 1e6:.3g} M tokens) a step", "--batch"))
    assumed.append(("nothing fails", "reliability=NAME (`codesign list reliability`)"))
    if not any(text.lstrip("+~").startswith(("space=", "space.plan.")) for text in options.overrides):
        defaults = "a loss in one piece, activations kept on the device, gradients reduced every micro-batch"
        kinds = "stages of equal length in 1f1b, sequence parallelism in a mixture of experts (Megatron-LM)"
        assumed.append((f"{defaults}, {kinds}", DEFAULT_AXES))
    suffix, formats = _format(options, FORMATS[0])
    overrides += formats
    if options.format is None:
        assumed.append((f"{FORMATS[0]} matrix products", "--format"))
    assumed += _always(options)
    workload = f"training{suffix}"
    overrides += _chosen(options)
    text = (
        f"least {options.goal} of training {options.model} on {', '.join(devices)}: {tokens / 1e12:.4g} T tokens in"
        f" {seconds / DAY_S:g} days, {step_s:.3g} s a step{texts}"
    )
    candidates = _candidates(devices, [workload], [*overrides, *_goal(options), *options.overrides])
    return Question(
        text, tuple(assumed), candidates, _counts(options), tokens_per_s=tokens / seconds, batch=batch,
        seconds=seconds, confidence=_confidence(options),
    )  # fmt: skip


def serving_base(options: argparse.Namespace) -> tuple[str, list[str]]:
    """(end of the workload's name, overrides) of model, number format, engine and region of a question.

    Raises:
        ConfigError: a value that is none.
    """
    suffix, formats = _format(options, PUBLISHED)
    return suffix, [*model_overrides(options.model), *formats, *_chosen(options), *options.overrides]


def share_of(options: argparse.Namespace) -> float:
    """`--confidence` as a share; 0 where it is not there."""
    return _confidence(options)


def _format(options: argparse.Namespace, default: str) -> tuple[str, list[str]]:
    """(end of the workload's name, overrides) of a number format: `fp8` of everything is a workload of its own.

    Raises:
        ConfigError: no such format.
    """
    name = options.format or default
    if name in FORMATS:
        if name != FORMATS[0]:
            return f"_{name}", []
        return "", [f"precision={name}"] if default == PUBLISHED else []  # what serves takes the published ones
    formats = sorted({*FORMATS, *available("precision")})
    if name not in formats:
        raise ConfigError(f"--format {name!r} does not exist{suggestion(name, formats)}; write {', '.join(formats)}")
    return "", [f"precision={name}"]


def _always(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Assumptions of every question."""
    engine = [] if options.engine else [("the framework that usually runs there", "--engine")]
    owned = [("owned: capital written off, electricity", "--region, ownership=cloud or ownership=on_premises")]
    said = options.region or any(text.startswith("ownership=") for text in options.overrides)
    return engine if said else [*engine, *owned]


def _chosen(options: argparse.Namespace) -> list[str]:
    """Overrides of the engine, and of the region in which devices are rented."""
    engine = [f"framework={options.engine}"] if options.engine else []
    return [*engine, *full_names([f"region={options.region}"])] if options.region else engine


def _limits(options: argparse.Namespace) -> tuple[list[str], str]:
    """Overrides that set limits, and the same in words."""
    result, texts = [], []
    for name in TIMES:
        for point in POINTS:
            option = f"{name}-{point}" if point else name
            text = getattr(options, option.replace("-", "_"), None)
            if text is not None:
                value = number(text, "s", f"--{option}", "2s or 50ms")
                result.append(f"objective.limits.{name}_{point}_s={value!r}".replace("__", "_"))
                texts.append(f"{name.upper()} {point or 'mean'} at most {text}")
    for option, key, unit, example in (
        ("budget", "capex_usd", "$", "$5M"), ("power", "provisioned_power_w", "W", "2MW or 500kW"),
    ):  # fmt: skip
        text = getattr(options, option, None)
        if text is not None:
            result.append(f"objective.limits.{key}={number(text, unit, f'--{option}', example)!r}")
            texts.append(f"{option} {text}")
    return result, "".join(f", {text}" for text in texts)


def _lengths(options: argparse.Namespace) -> list[str]:
    if options.trace is not None:
        if options.input or options.output:
            raise ConfigError("--trace says the lengths: leave out --input and --output")
        return [f"workload.trace={options.trace}"]
    return [
        f"workload.input_tokens={count_of(options.input or INPUT, '--input')!r}",
        f"workload.output_tokens={count_of(options.output or OUTPUT, '--output')!r}",
    ]


def _rate_of(path: str) -> float:
    """Requests a second of a trace, 0 where it does not say when they come or all come at once."""
    from ..simulation.serving import read_trace

    arrivals = read_trace(path, timed=False).arrivals
    span = 0.0 if arrivals is None else float(arrivals[-1] - arrivals[0])
    return 0.0 if arrivals is None or span <= 0 else (len(arrivals) - 1) / span


def refuse_search(overrides: Sequence[str]) -> str:
    """Error text if overrides set a search, which `--confidence` does not allow; empty otherwise."""
    search_overrides = [text for text in overrides if text.lstrip("+~").startswith(("search=", "search."))]
    return f"--confidence is a search of its own: leave out {search_overrides[0]!r}" if search_overrides else ""


def _goal(options: argparse.Namespace) -> list[str]:
    return [] if options.goal == "cost" else [f"objective.minimise={GOALS[options.goal]}"]


def _confidence(options: argparse.Namespace) -> float:
    if options.confidence is None:
        return 0.0
    try:
        share = float(options.confidence.removesuffix("%")) / (100 if options.confidence.endswith("%") else 1)
    except ValueError:
        share = float("nan")
    if not 0 < share < 1:
        raise ConfigError(f"--confidence {options.confidence!r} is no share between 0 and 1; write 0.9 or 90%")
    return share


def _counts(options: argparse.Namespace) -> tuple[int, ...]:
    """Counts of `--devices`, or the one of `num_gpus=64`; none where the demand decides."""
    typed = [text.partition("=")[2] for text in options.overrides if text.startswith("cluster.device_count=")]
    if typed and options.devices is not None:
        raise ConfigError(f"--devices {options.devices} and cluster.device_count={typed[0]}: leave one out")
    listed = options.devices if options.devices is not None else typed[0] if typed else None
    if listed is None:
        return ()
    said = [count_of(text, "--devices") for text in listed.split(",") if text.strip()]
    for count in said:
        if not count.is_integer():
            raise ConfigError(f"--devices {count:g} is not a whole number; take {count // 1:g} or {count // 1 + 1:g}")
    result = sorted({int(count) for count in said})
    if not result:
        raise ConfigError("--devices: name counts, as in --devices 64 or --devices 32,64,128")
    return tuple(result)


AXIS = re.compile(r"(?m)^  (\w+):")


def _pinned(overrides: Sequence[str], space: str) -> list[str]:
    """Overrides with the plan's numbers as the one choice of their axis where the space searches it: tp=8 is TP 8."""
    path = conf_dir() / "space" / f"{space}.yaml"
    axes = set(AXIS.findall(read_text(path, "space").partition("plan:")[2]))
    result: list[str] = []
    for text in overrides:
        key, _, value = text.lstrip("+~").partition("=")
        name = key.removeprefix("plan.")
        searched = key.startswith("plan.") and name in axes and not value.startswith("[")
        result.append(f"space.plan.{name}=[{value}]" if searched else text)
    return result


def _candidates(devices: Sequence[str], workloads: Sequence[str], rest: Sequence[str]) -> tuple[Candidate, ...]:
    """A candidate for each accelerator and workload."""
    searched = [] if any(text.lstrip("+~").startswith("search=") for text in rest) else [PROOF]
    chosen = any(text.lstrip("+~").startswith("space=") for text in rest)
    result = []
    for device in devices:
        for workload in workloads:
            pool = ["prefill=same"] if workload.startswith("disaggregated") else []
            kind = next(name for begins, name in SPACES if workload.startswith(begins))
            space = [] if chosen else [f"space={kind}"]
            texts = list(rest) if chosen else _pinned(rest, kind)
            overrides = admit([*searched, f"accelerator={device}", f"workload={workload}", *space, *pool, *texts])
            varied = {"accelerator": device} if len(workloads) == 1 else {"accelerator": device, "workload": workload}
            label = device if len(workloads) == 1 else f"{device}, {'pools apart' if pool else 'one pool'}"
            result.append(Candidate(label, varied, tuple(overrides)))
    return tuple(result)
