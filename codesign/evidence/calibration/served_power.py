"""Power of served models in steady decoding: what choosing tokens by chance adds, and what boards draw.

Fitted on rows that were priced (`validation.power`), and written as configuration.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from scipy.optimize import least_squares

from .board_power import BYTE_J, HEADER
from .constants import inline, provenance_lines, publish, significant
from .gpus import option_of

# Power of boards and cost of choosing tokens, fitted on served models in steady decoding.
#
# Times first: the four constants of `Sampled` on seconds of a step, all devices together. Then, with
# steps as long as they were measured,
#
#     W = min(idle_w + (working_w (step - step_overhead_s) + joules of arithmetic, traffic and links) / step, rated_w)
#
# of each device: the sum of idle_w and working_w, joules a FLOP by format, joules a byte. idle_w over that sum is one
# number of all devices: only a board that waits for its host tells it. `rated_w` is the limit in the table of peaks.


ENGINE = "vllm"  # of all these tables
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


class Sampled(NamedTuple):
    """Constants of choosing tokens by chance and of its host."""

    step_overhead_s: float = 0.0
    sampling_s: float = 0.0
    expert_layer_s: float = 0.0
    prompt_tokens: float = 1.0

    def added_s(self, words: np.ndarray, layers: np.ndarray) -> np.ndarray:
        """Seconds of a step beyond its kernels: by words that are chosen from, and layers with experts."""
        return self.step_overhead_s + self.sampling_s * words + self.expert_layer_s * layers


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


class DecodedJobs(NamedTuple):
    """Work of rows that decode: arrays of one length.

    Attributes:
        words: that a step chooses from, the vocabulary for every sequence.
        layers: with experts.
        product_format, attention_format: names of number formats.
        other_j_per_flop: joules of arithmetic that is neither.
    """

    words: np.ndarray
    layers: np.ndarray
    product_format: np.ndarray
    attention_format: np.ndarray
    other_j_per_flop: np.ndarray


class PowerRows(NamedTuple):
    """Rows: jobs, what was measured (seconds a step, watts a board, joules a token), priced at two prompt lengths."""

    jobs: DecodedJobs
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
        parts = (
            part[chosen] if isinstance(part, np.ndarray) else type(part)(*(column[chosen] for column in part))
            for part in self
        )
        return PowerRows(*parts)

    def at(self, prompt_tokens: float) -> DrawnPower:
        """Priced at prompts so long."""
        share = (prompt_tokens - 1) / (FAR - 1)
        return DrawnPower(*(a + share * (b - a) for a, b in zip(self.near, self.far, strict=True)))

    def steps_s(self, sampled: Sampled) -> np.ndarray:
        """Seconds of a step."""
        return self.at(sampled.prompt_tokens).step_s + sampled.added_s(self.jobs.words, self.jobs.layers)


def fit_times(seen: PowerRows) -> Sampled:
    """The four constants."""
    words, layers = seen.jobs.words, seen.jobs.layers

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
    result, jobs = seen.at(sampled.prompt_tokens), seen.jobs
    flops = np.stack([
        np.where(jobs.product_format == name, result.products, 0.0)
        + np.where(jobs.attention_format == name, result.attended, 0.0)
        for name in NAMES
    ])  # fmt: skip
    busy = result.kernels_s + sampled.added_s(jobs.words, jobs.layers) - sampled.step_overhead_s
    fixed = result.others * jobs.other_j_per_flop + result.comm_j
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
    step, watts = seen.steps_s(sampled), np.full(len(seen.gpus), np.nan)
    for name, board in boards.items():
        here = seen.gpus == name
        mine = seen.some(here)._replace(step_s=step[here])
        watts[here] = _watts(_load(mine, sampled), board)
    return watts, watts * step * seen.devices


def left_out(seen: PowerRows, limits: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
    """Power and energy by constants fitted on rows of other devices or models; nan where these are too few."""
    watts, joules = (np.full(len(seen.gpus), np.nan) for _ in range(2))
    for gpu, model in sorted(set(zip(seen.gpus, seen.models, strict=True))):
        here = (seen.gpus == gpu) & (seen.models == model)
        others = seen.some(~here)
        if not _enough(others, limits):  # a small folder of a user's
            continue
        sampled = fit_times(others)
        watts[here], joules[here] = predicted(seen.some(here), sampled, fit_boards(others, sampled, limits))
    return watts, joules


def calibrate_serving_power(
    seen: PowerRows | None, limits: dict[str, float], out: Path, progress: Callable[[str], None] = lambda text: None
) -> list[Path]:
    """Fit and write `frameworks/sampled.yaml` and `power/<accelerator>.yaml` under `out`; the files, if any."""
    if seen is None or len(seen.gpus) < FEWEST:
        return []
    sampled = fit_times(seen)
    boards = fit_boards(seen, sampled, limits)
    watts, joules = predicted(seen, sampled, boards)
    apart = left_out(seen, limits)
    error, _ = _median(seen.steps_s(sampled), seen.step_s)
    note = f"{len(seen.gpus)} rows, four constants, median residual {error:.1f} % of a step"
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
