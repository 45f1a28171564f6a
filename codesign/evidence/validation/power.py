"""Power and energy: boards while one kernel repeats, and served models in steady decoding.

kernels            what clocks, arithmetic and traffic of the table draw by energies that were fitted on the others
steady decoding    time and joules as the model predicts them for the batch that decodes, under vLLM with tokens
                   chosen by chance (below): board power, J/token; also with times and energies fitted
                   without the rows of the same device and model
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
import yaml
from scipy.optimize import least_squares

from ...config.groups import conf_dir
from ...core.errors import ConfigError
from ...core.json_yaml import read_yaml
from ...model.metrics.evaluation import drawn_j, priced_ops
from ...model.scenario import Scenario
from ...model.workloads import CommOp, ComputeOp, ContinuousServing
from ..calibration.board_power import BYTE_J, FORMATS, HEADER, LEAST_LATENCY_US, board_limits
from ..calibration.constants import inline, provenance_lines, publish, significant
from ..calibration.gpus import option_of
from ..measurements import tables
from .row_overrides import PricedRun, board_cluster, model_of, scenarios_of
from .scores import Errors, Row, Suite, errors_by, read_rows, rows
from .served_rows import BLOCKS, Job, check_format, format_of, precision_of
from .served_rows import run_of as served_run
from .vectorise import batches, grouped, vectorised

# Power of served models in steady decoding: times and joules of an engine that chooses tokens by chance.
#
# Clients of these tables ask for what models recommend, top-p: vLLM then sorts all scores of every sequence in every
# step, with PyTorch where its other sampler was not chosen (vLLM pull request 11394: a fifth of the throughput).
# A step takes what the engine's kernels take, and
#
#     step_overhead_s + sampling_s words B + expert_layer_s layers with experts
#
# with B sequences. Prompts, which the tables do not state, are `prompt_tokens` long. The four are fitted
# (`codesign calibrate`) and kept in `conf/calibration/frameworks/sampled.yaml`.


ENGINE = "vllm"  # of all these tables


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
    result = Job(
        board_cluster(row.gpu), model, named, row.num_gpus / row.dp, 1.0, row.dp,
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
    return DrawnPower(*grouped(batches(scenarios_of([run_of(one, sampled) for one in jobs], energies=True)), _priced))


def run_of(one: Job, sampled: Sampled) -> PricedRun:
    """The overrides of a job, under vLLM that chooses tokens by chance."""
    chosen, numbers = served_run(one)
    measured = (conf_dir() / "calibration" / "power" / f"{one.cluster.accelerator.name}.yaml").is_file()
    words = [word.replace(f"framework={ENGINE}", f"framework={ENGINE}_sampled") for word in chosen]
    words += [f"+calibration/power={one.cluster.accelerator.name}"] if measured else []
    added = {f"workload.{name}": value for name, value in sampled._asdict().items() if name != "prompt_tokens"}
    return PricedRun(tuple(words), numbers | added | {"workload.input_tokens": sampled.prompt_tokens})


def formats(job: Job) -> tuple[str, str]:
    """Number formats of products and of attention."""
    precision = precision_of(job)
    return "fp8" if job.number_format == BLOCKS else precision.compute, precision.attention


# Power of boards and cost of choosing tokens, fitted on served models in steady decoding.
#
# Times first: the four constants of `Sampled` on seconds of a step, all devices together. Then, with
# steps as long as they were measured,
#
#     W = min(idle_w + (working_w (step - step_overhead_s) + joules of arithmetic, traffic and links) / step, rated_w)
#
# of each device: the sum of idle_w and working_w, joules a FLOP by format, joules a byte. idle_w over that sum is one
# number of all devices: only a board that waits for its host tells it. `rated_w` is the limit in the table of peaks.


ORIGIN = {"source": "mlenergy2025", "at": "evidence.validation.power", "kind": "fitted"}
LIMITS = {"h100_sxm": "nvidia_h100_whitepaper", "b200": "nvidia_hgx_page"}  # where limits of shipped boards stand
SAMPLED_HEADER = (
    "# @package frameworks\n# What choosing tokens by top-p adds to steps; fitted by `codesign calibrate`.\n"
)
FAR = 200.0  # prompt tokens at which rows are priced again: times are nearly linear in them
FEWEST = 20  # rows of a device
LOOSE = 0.05, 0.1  # error of times, of powers, from which a row counts less than by its square
SCALES = (1e-3, 1e-9, 1e-4, 100.0)
HIGHEST = (50.0, 5.0, 50.0, 20.0)  # of the four, in `SCALES`
NAMES = ("bf16", "fp8")  # the second takes no more than the first
MOST_J_FLOP = 2e-12  # three times what boards were found to take


class PowerRows(NamedTuple):
    """Rows: jobs, what was measured (seconds a step, watts a board, joules a token), priced at two prompt lengths."""

    jobs: list[Job]
    gpus: np.ndarray
    models: np.ndarray
    step_s: np.ndarray
    watts: np.ndarray
    joules: np.ndarray
    devices: np.ndarray
    near: DrawnPower
    far: DrawnPower

    def some(self, chosen: np.ndarray) -> "PowerRows":
        """Subset of the rows."""
        parts = [[one for one, take in zip(self.jobs, chosen, strict=True) if take]]
        parts += [type(part)(*(column[chosen] for column in part)) if isinstance(part, DrawnPower) else part[chosen]
                  for part in self[1:]]  # fmt: skip
        return PowerRows(*parts)

    def at(self, prompt_tokens: float) -> DrawnPower:
        """Priced at prompts so long."""
        share = (prompt_tokens - 1) / (FAR - 1)
        return DrawnPower(*(a + share * (b - a) for a, b in zip(self.near, self.far, strict=True)))

    def steps_s(self, sampled: Sampled) -> np.ndarray:
        """Seconds of a step."""
        return self.at(sampled.prompt_tokens).step_s + sampled.added_s(words_of(self.jobs), expert_layers(self.jobs))


def seen_rows(directory: Path) -> PowerRows | None:
    """Rows of all tables below a folder that can be priced; None where there are none."""
    rows, jobs = read_rows(directory, "serving_power", job, [])
    if not jobs:
        return None
    return seen_of(rows, jobs, drawn(jobs, Sampled()), drawn(jobs, Sampled(prompt_tokens=FAR)))


def seen_of(rows: pd.DataFrame, jobs: list[Job], near: DrawnPower, far: DrawnPower) -> PowerRows:
    """Rows of a table with their prices."""
    step = (rows["avg_batch_size"] / rows["output_tokens_per_s"]).to_numpy(dtype=float)
    return PowerRows(
        jobs, rows["gpu"].to_numpy(), rows["model"].to_numpy(), step, rows["avg_power_w_per_gpu"].to_numpy(dtype=float),
        rows["energy_j_per_output_token"].to_numpy(dtype=float), devices_of(jobs), near, far,
    )  # fmt: skip


def devices_of(jobs: Sequence[Job]) -> np.ndarray:
    """Devices over sequences that decode together: what joules a token are of."""
    return np.array([one.tp * one.replicas / one.sequences for one in jobs])


def fit_times(seen: PowerRows) -> Sampled:
    """The four constants."""
    words, layers = words_of(seen.jobs), expert_layers(seen.jobs)

    def sampled(x: np.ndarray) -> Sampled:
        step, choice, expert, prompt = x * SCALES
        return Sampled(step, choice, expert, max(prompt, 1.0))

    def missed(x: np.ndarray) -> np.ndarray:
        tried = sampled(x)
        return np.log((seen.at(tried.prompt_tokens).step_s + tried.added_s(words, layers)) / seen.step_s)

    fit = least_squares(missed, np.ones(4), bounds=(0.0, HIGHEST), loss="soft_l1", f_scale=LOOSE[0])
    return Sampled(*(significant(value) for value in sampled(fit.x)))


class BoardFit(NamedTuple):
    """Fitted constants of one device's board."""

    idle_w: float
    working_w: float
    rated_w: float
    energy_j_per_flop: dict[str, float]
    energy_j_per_byte: float


class _Load(NamedTuple):
    """Load of one device's rows: rates over a measured step."""

    working: np.ndarray
    flops: np.ndarray  # by `NAMES`
    fixed_w: np.ndarray
    nbytes: np.ndarray
    watts: np.ndarray


def _load(seen: PowerRows, sampled: Sampled) -> _Load:
    result, flops = seen.at(sampled.prompt_tokens), np.zeros((len(NAMES), len(seen.jobs)))
    for index, one in enumerate(seen.jobs):
        for name, column in zip(formats(one), (result.products, result.attended), strict=True):
            if name in NAMES:
                flops[NAMES.index(name), index] += column[index]
    others = np.array([float(one.cluster.accelerator.energy_j_per_flop.get("vector", 0.0)) for one in seen.jobs])
    busy = result.kernels_s + sampled.added_s(words_of(seen.jobs), expert_layers(seen.jobs)) - sampled.step_overhead_s
    fixed = result.others * others + result.comm_j
    step = seen.step_s
    return _Load(busy / step, flops / step, fixed / step, result.nbytes / step, seen.watts)


def fit_boards(seen: PowerRows, sampled: Sampled, limits: dict[str, float]) -> dict[str, BoardFit]:
    """Device -> what its board draws, of those with a limit and enough rows."""
    names = _enough(seen, limits)
    if not names:
        return {}
    loads = {g: _load(seen.some(seen.gpus == g), sampled) for g in names}
    width = 1 + len(NAMES) + 1

    def boards(x: np.ndarray) -> dict[str, BoardFit]:
        result = {}
        for name, mine in zip(names, x[1:].reshape(-1, width), strict=True):
            floor, wide, narrow = mine[0] * limits[name], mine[1] * MOST_J_FLOP, mine[1] * mine[2] * MOST_J_FLOP
            joules = dict(zip(NAMES, (float(wide), float(narrow)), strict=True))
            result[name] = BoardFit(x[0] * floor, (1 - x[0]) * floor, limits[name], joules, mine[-1] * BYTE_J[1])
        return result

    def missed(x: np.ndarray) -> np.ndarray:
        parts = [_watts(loads[name], board) / loads[name].watts - 1 for name, board in boards(x).items()]
        return np.concatenate(parts)

    low = [0.0, *([0.0] * (width - 1) + [BYTE_J[0] / BYTE_J[1]]) * len(names)]
    start = [0.4, *([0.5] + [0.3] * len(NAMES) + [0.7]) * len(names)]
    fit = least_squares(missed, start, bounds=(low, np.ones(len(low))), loss="soft_l1", f_scale=LOOSE[1])
    return boards(fit.x)


def _enough(seen: PowerRows, limits: dict[str, float]) -> list[str]:
    """Devices with a limit and rows to fit a board on."""
    return [gpu for gpu in sorted(set(seen.gpus)) if gpu in limits and (seen.gpus == gpu).sum() >= FEWEST]


def _watts(load: _Load, board: BoardFit) -> np.ndarray:
    per_flop = np.array([board.energy_j_per_flop[name] for name in NAMES])
    arithmetic = per_flop @ load.flops + board.energy_j_per_byte * load.nbytes + load.fixed_w
    return np.minimum(board.idle_w + board.working_w * np.minimum(load.working, 1.0) + arithmetic, board.rated_w)


def predicted(seen: PowerRows, sampled: Sampled, boards: dict[str, BoardFit]) -> tuple[np.ndarray, np.ndarray]:
    """Watts of a board and joules a token, nothing of the rows known; nan of devices without a board."""
    step, watts = seen.steps_s(sampled), np.full(len(seen.jobs), np.nan)
    for name, board in boards.items():
        here = seen.gpus == name
        mine = seen.some(here)._replace(step_s=step[here])
        watts[here] = _watts(_load(mine, sampled), board)
    return watts, watts * step * seen.devices


def left_out(seen: PowerRows, limits: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
    """Power and energy by constants fitted on rows of other devices or models; nan where these are too few."""
    watts, joules = (np.full(len(seen.jobs), np.nan) for _ in range(2))
    for gpu, model in sorted(set(zip(seen.gpus, seen.models, strict=True))):
        here = (seen.gpus == gpu) & (seen.models == model)
        others = seen.some(~here)
        if not _enough(others, limits):  # a small folder of a user's
            continue
        sampled = fit_times(others)
        watts[here], joules[here] = predicted(seen.some(here), sampled, fit_boards(others, sampled, limits))
    return watts, joules


def calibrate_serving_power(
    directory: Path, out: Path, progress: Callable[[str], None] = lambda text: None
) -> list[Path]:
    """Fit and write `frameworks/sampled.yaml` and `power/<accelerator>.yaml` under `out`; the files, if any."""
    seen, limits = seen_rows(directory), board_limits(directory)
    if seen is None or len(seen.jobs) < FEWEST:
        return []
    sampled = fit_times(seen)
    boards = fit_boards(seen, sampled, limits)
    watts, joules = predicted(seen, sampled, boards)
    apart = left_out(seen, limits)
    error, _ = _median(seen.steps_s(sampled), seen.step_s)
    note = f"{len(seen.jobs)} rows, four constants, median residual {error:.1f} % of a step"
    progress(f"{ENGINE}, tokens chosen by chance: {note}")
    origin: dict[str, Any] = {ENGINE: ORIGIN | {"note": note}}
    content = SAMPLED_HEADER + yaml.safe_dump({ENGINE: sampled._asdict()}) + "".join(provenance_lines(origin))
    texts: dict[Path, str | bytes] = {out / "frameworks" / "sampled.yaml": content}
    for gpu, board in boards.items():
        name, here = option_of(gpu), seen.gpus == gpu
        if name is None:
            progress(f"board power of {gpu}: no accelerator of that name")
            continue
        power, energy, far, farther = (
            _median(ours[here], theirs[here])[0]
            for ours, theirs in zip((watts, joules, *apart), (seen.watts, seen.joules) * 2, strict=True)
        )
        note = f"{here.sum()} rows; median errors {power:.1f} % of the power ({far:.1f} of models left out), "
        note += f"{energy:.1f} % of joules a token ({farther:.1f}); idle_w over idle_w + working_w is one number of all"
        progress(f"board power {gpu}: {note}")
        texts[out / "power" / f"{name}.yaml"] = text_of(name, board, note)
    return publish(texts)


def _median(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, int]:
    finite = np.isfinite(ours)
    return 100 * float(np.median(np.abs(ours[finite] / theirs[finite] - 1))), int(finite.sum())


def text_of(name: str, board: BoardFit, note: str) -> str:
    """A file of the `calibration/power` group."""
    origin = ORIGIN | {"note": note}
    origin_of_limit = {"source": LIMITS.get(name, "assumption"), "kind": "datasheet" if name in LIMITS else "assumed"}
    limit = origin_of_limit | {"at": "TDP of the board", "note": "as in the table of peaks"}
    joules = {key: significant(value) for key, value in board.energy_j_per_flop.items() if value > 0}
    draws = {
        "_target_": "codesign.model.hardware.Board",
        "working_w": significant(board.working_w),
        "rated_w": board.rated_w,
    }
    lines = [
        HEADER, f"# Board power of {name}, fitted by `codesign calibrate`.\n",
        f"idle_w: {inline(significant(board.idle_w))}\n", f"energy_j_per_flop: {inline(joules)}\n",
        f"hbm: {inline({'energy_j_per_byte': significant(board.energy_j_per_byte)})}\n", f"board: {inline(draws)}\n",
        *provenance_lines(
            dict.fromkeys(("idle_w", "energy_j_per_flop", "hbm.energy_j_per_byte", "board.working_w"), origin)
            | {"board.rated_w": limit}
        ),
    ]  # fmt: skip
    return "".join(lines)


LEFT_OUT = ", GPU and model left out"
QUANTITIES = (
    ("board_power", "watts", "avg_power_w_per_gpu"), ("joules_per_token", "joules", "energy_j_per_output_token"),
)  # fmt: skip


def kernel_errors(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Watts of boards while a kernel repeats."""
    for table in tables(directory, "kernel_power"):
        result = table.rows(messages)
        brief, unknown = result["latency_us"] <= LEAST_LATENCY_US, ~result["dtype"].isin(FORMATS)
        for chosen, why in (
            (unknown, "of other number formats set aside"),
            (brief & ~unknown, f"of {LEAST_LATENCY_US:g} us or less set aside, a sensor does not resolve them"),
        ):
            if chosen.any():
                messages.append(f"{table.shown}: {int(chosen.sum())} rows {why}")
        for (gpu, kernel), part in result[~brief & ~unknown].groupby(["gpu", "kernel"], sort=True):
            try:
                accelerator = board_cluster(str(gpu)).accelerator
            except ConfigError as error:
                messages.append(f"{table.shown}: {len(part)} rows set aside: {error}")
                continue
            per_flop = part["dtype"].map(
                lambda name, device=accelerator: float(device.energy_j_per_flop.get(FORMATS[name][0], np.nan))
            )
            priced = per_flop.notna()
            idle, traffic = accelerator.idle_power_w(), float(accelerator.hbm.energy()) * part["achieved_tbytes_per_s"]
            watts = 1e12 * (per_flop * part["achieved_tflops"] + traffic)
            if accelerator.board is not None:  # of one second
                most = float(accelerator.board.most_j(jnp.asarray(1.0), idle))
                watts = np.minimum(watts + float(accelerator.board.working_w), most)
            watts = float(idle) + watts
            yield Errors("kernels", f"{gpu} {kernel}", watts[priced].to_numpy(), part["power_w"][priced].to_numpy())


def decoding(directory: Path, messages: list[str]) -> pd.DataFrame:
    """Rows of served models with watts of a board and joules a token, also by constants of other rows alone."""
    result, jobs = read_rows(directory, "serving_power", job, messages)
    if not jobs:
        return result
    seen, limits = drawn(jobs, stored_sampled()), board_limits(directory)
    watts = np.array([float(one.cluster.accelerator.idle_power_w()) for one in jobs]) + seen.energy_j / seen.step_s
    apart = left_out(seen_of(result, jobs, drawn(jobs, Sampled()), drawn(jobs, Sampled(prompt_tokens=FAR))), limits)
    return result.assign(
        watts=watts, joules=watts * seen.step_s * devices_of(jobs), watts_apart=apart[0], joules_apart=apart[1]
    )


def run_power(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of power."""
    result = rows("power", "board_power", kernel_errors(directory, messages))
    table = decoding(directory, messages)
    for quantity, name, measured in QUANTITIES if len(table) else ():
        for suffix, end in (("", ""), (LEFT_OUT, "_apart")):
            errors = errors_by(f"steady decoding{suffix}", table, ["gpu", "model"], f"{name}{end}", measured)
            result += rows("power", quantity, errors)
    return result


POWER = Suite("power", ("kernel_power", "serving_power"), run_power)
