"""Deployment of a design for `codesign export`: its plan, model and load, whatever the target calls them."""

import csv
import dataclasses
import functools
import math
import re
import shlex
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError
from ..core.json_yaml import is_mapping
from ..core.resources import conf_dir
from ..core.units import engineering
from ..core.untrusted_io import read_text
from ..model.workloads import Plan, ShapedPlan
from ..model.workloads.plan_fields import plan_field, words_of
from ..report.run_folder import PLAN_PREFIX, RunFolder
from ..study.objective import feasible

CONTINUOUS = (
    *("ContinuousServing", "ServingAtRate", "GoodputServing"),
    *("DisaggregatedServing", "DisaggregatedAtRate", "DisaggregatedGoodput", "AttentionFfnServing"),
)
SERVED = ("StaticBatch", *CONTINUOUS)
TRAINED = ("Training", "TrainingRun")
LIMIT_PREFIX = "limit."  # of columns with used shares
PREDICTED = ("ttft_s", "tpot_s", "tokens_per_s")  # that a benchmark measures
UNCHANGED = ("device_count", "prefill_max_utilisation")  # said elsewhere, or no choice of an engine's
PUBLISHED = re.compile(r"config\.json of ([\w-]+/[\w.-]*\w)")  # in the first lines of conf/model/NAME.yaml


@dataclasses.dataclass(frozen=True)
class Deployment:
    """One design of a run, with the numbers that were varied in the place of those configured.

    plan: every field of a plan. hardware: varied numbers that are no fields of the plan. hub: name of the model where
    it is published; empty where none is known. spilled_bytes: weights of one device beyond its first memory. broken:
    limit -> used share, of those that the design breaks. memory: class of data -> bytes in a device's first memory.
    predicted: metric -> value.
    """

    title: str
    feasible: bool
    broken: Mapping[str, float]
    work: str
    plan: Mapping[str, float]
    hardware: Mapping[str, float]
    workload: Mapping[str, Any]
    model: Mapping[str, Any]
    hub: str
    accelerator: str
    domain: int
    spilled_bytes: float
    memory: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])
    capacity_bytes: float = 0.0
    reserved_bytes: float = 0.0
    predicted: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])

    def stored(self, *kinds: str) -> float:
        """Bytes of a device's first memory, of these classes of data; of all without any."""
        return sum(value for kind, value in self.memory.items() if not kinds or kind in kinds)

    @property
    def devices(self) -> int:
        """Accelerators, without those of a prefill pool."""
        return round(self.plan["device_count"])

    @property
    def replicas(self) -> int:
        """Copies of the model."""
        return max(self.devices // (self.of("tp") * self.of("cp") * self.of("pp")), 1)

    @property
    def is_dense(self) -> bool:
        """True if the run knows the model's shape, and no experts in it."""
        return bool(self.number("model", "layers")) and not self.has_experts

    @property
    def has_experts(self) -> bool:
        """True if the model is a mixture of experts."""
        return bool(self.number("model", "feed_forward", "experts"))

    def of(self, name: str) -> int:
        """A field of the plan that is a whole number."""
        return round(self.plan[name])

    def format(self, tensor: str) -> str:
        """Number format of a class of tensors."""
        said = self.workload.get("precision")
        return str(said.get(tensor, "bf16")) if isinstance(said, Mapping) else "bf16"

    @property
    def optimizer(self) -> str:
        """Class of the optimizer; empty where the run does not say."""
        said = self.workload.get("optimizer")
        return str(said.get("_target_", "")).rpartition(".")[2] if is_mapping(said) else ""

    def number(self, *keys: str, default: float = 0.0) -> float:
        """A number of the workload, by keys; the default where nothing is said."""
        node: Any = {**self.workload, "model": self.model}
        for key in keys:
            node = node.get(key) if isinstance(node, Mapping) else None
        return float(node) if isinstance(node, int | float) and math.isfinite(node) else default

    def refuse_unless(self, works: Iterable[str], target: str) -> None:
        """Raises:
        ConfigError: this is no plan of such works.
        """
        if self.of("ffn_devices"):
            raise ConfigError(
                f"export: --to {target}: no release of vLLM, SGLang or TensorRT-LLM runs feed-forward networks apart"
                f" from attention (plan.ffn_devices = {self.of('ffn_devices')}), only plug-ins and patches that are"
                " experimental"
            )
        if self.work not in works:
            kind = "serves" if target in SERVERS else "trains"
            raise ConfigError(
                f"export: --to {target} {kind}, and this run's workload is {self.work}{_better(self.work)}"
            )


SERVERS = ("vllm", "sglang", "trtllm", "k8s", "lws", "dynamo", "llm-d")
TRAINERS = ("megatron", "torchtitan", "maxtext")


def _better(work: str) -> str:
    """Targets that a workload has."""
    targets = SERVERS if work in SERVED else TRAINERS if work in TRAINED else ()
    return f": {', '.join(targets)} can run it" if targets else ": no target runs it"


def deployment(run: RunFolder, design: int) -> Deployment:
    """A design of a run, by its rank.

    Raises:
        ConfigError: no such design, or a run of several workloads.
    """
    row = _row(run, design)
    workload = run.setting("workload")
    mixed = str(run.setting("search._target_")).endswith(".Mix")
    if mixed or not isinstance(workload, Mapping) or not isinstance(workload.get("model"), Mapping):
        raise ConfigError(f"export: {str(run.path)!r} has no single workload with a model: several cannot be exported")
    plan = _plan(run, row)
    model = dict(workload["model"])
    name = str(model.get("name", ""))
    numbers = {key: float(value) for key, value in row.items() if isinstance(value, int | float)}
    varied = {key.removeprefix(PLAN_PREFIX): numbers[key] for key in numbers if key.startswith(PLAN_PREFIX)}
    spilled = [key for key in numbers if re.fullmatch(r"memory_bytes\.(?!hbm/).*/weights", key)]
    return Deployment(
        title=f"design {design} of {run.path.name}" + (f" ({row['method']})" if "method" in row else ""),
        feasible=bool(row.get("feasible", True)),
        broken={
            key.removeprefix(LIMIT_PREFIX): numbers[key]
            for key in numbers
            if key.startswith(LIMIT_PREFIX) and not feasible(numbers[key] - 1)
        },
        work=_work(run, workload),
        plan=plan,
        hardware={key: value for key, value in varied.items() if key not in plan and key != "dp"},
        workload=workload,
        model=_shaped(model, plan),
        hub="" if _shaped(model, plan) != model else published(name),
        accelerator=str(row.get("device") or run.setting("cluster.accelerator.name") or ""),
        domain=_domain(run),
        memory={key.rpartition("/")[2]: numbers[key] for key in numbers if key.startswith("memory_bytes.hbm/")},
        capacity_bytes=_setting(run, "cluster.accelerator.hbm.capacity_bytes"),
        reserved_bytes=_setting(run, "cluster.accelerator.hbm.reserved_bytes"),
        predicted={key: numbers[key] for key in PREDICTED if math.isfinite(numbers.get(key, math.nan))},
        spilled_bytes=sum(numbers[key] for key in spilled if math.isfinite(numbers[key])),
    )


def _setting(run: RunFolder, key: str) -> float:
    """A number of the configuration; 0 where there is none."""
    value = run.setting(key)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _row(run: RunFolder, design: int) -> dict[str, Any]:
    frame = run.designs
    rows = frame[frame["rank"] == design] if "rank" in frame else frame.iloc[:0]
    if not len(rows):
        raise ConfigError(f"{str(run.path)!r} has no design {design}: 1 to {len(frame)}")
    return {str(key): value for key, value in rows.iloc[0].to_dict().items() if value == value}


def _work(run: RunFolder, workload: Mapping[str, Any]) -> str:
    """Name of the workload's class; of a folder that does not say, what its numbers tell."""
    named = str(workload.get("_target_", "")).rpartition(".")[2]
    return named or ("StaticBatch" if run.is_serving else "Training")


@functools.cache
def usual() -> dict[str, float]:
    """Fields of plans with what they are where nothing is said; none of a model's shape."""
    return {
        field.name: float(field.default) for field in dataclasses.fields(Plan) if isinstance(field.default, int | float)
    }


def _plan(run: RunFolder, row: Mapping[str, Any]) -> dict[str, float]:
    """Every field: as varied, else as configured, else as usual."""
    said, values = run.setting("plan"), dict(usual())
    summary: dict[str, Any] = {"device_count": run.setting("cluster.device_count") or 1}
    summary |= said if isinstance(said, dict) else {}
    summary |= {key.removeprefix(PLAN_PREFIX): value for key, value in row.items() if key.startswith(PLAN_PREFIX)}
    for field in dataclasses.fields(ShapedPlan):
        if summary.get(field.name) is not None:
            values[field.name] = _legal(field.name, summary[field.name], field.metadata)
    return values


def _legal(name: str, value: Any, metadata: Mapping[str, Any]) -> float:
    """A number in the range of its field.

    Raises:
        ConfigError: it is none, as in a folder that something else wrote.
    """
    number = words_of(name).index(value) if value in words_of(name) else value
    low, high = float(metadata.get("low", 0.0)), float(metadata.get("high", math.inf))
    if isinstance(number, int | float) and low <= number <= high:
        return float(number)
    raise ConfigError(f"export: {name} = {value!r} of this run is no number from {low:g} to {high:g}")


def _shaped(model: Mapping[str, Any], plan: Mapping[str, float]) -> dict[str, Any]:
    """The model with what the plan chose of its shape."""
    result = dict(model) | {name: plan[name] for name in ("layers", "hidden", "vocab") if name in plan}
    for part, names in (
        ("attention", ("heads", "kv_heads")),
        ("feed_forward", ("experts", "top_k", "expert_width", "width")),
    ):
        chosen = {name: plan[name] for name in names if name in plan}
        if chosen and isinstance(result.get(part), Mapping):
            result[part] = {**result[part], **chosen}
    return result


def published(name: str) -> str:
    """The name under which a hub has a model of the catalogue, where its file says whose `config.json` it was."""
    path = conf_dir() / "model" / f"{name}.yaml"
    if not re.fullmatch(r"\w+", name) or not path.is_file():
        return ""
    result = PUBLISHED.search(read_text(path, "model"))
    return result[1] if result else ""


def _domain(run: RunFolder) -> int:
    """Devices of the fastest network level, of a torus all its nodes; 8 where it does not say."""
    extents = run.setting("cluster.network.scale_up.fabric.shape.extents")
    if isinstance(extents, list) and extents and all(isinstance(one, int) and one > 0 for one in extents):
        return math.prod(extents)
    result = run.setting("cluster.network.scale_up.fabric.endpoints")
    return round(result) if isinstance(result, int | float) and 1 <= result < math.inf else 8


def value_text(name: str, value: float) -> str:
    """A field's value, by its name where it has one."""
    words = words_of(name)
    return words[round(value)] if words else f"{value:g}"


def unsaid(deployment: Deployment, used: Iterable[str]) -> list[str]:
    """A line for every field that is not as usual and that no switch took, and for numbers of the hardware."""
    plain = usual() | {"device_count": deployment.plan["device_count"]}
    left = [
        name
        for name, value in deployment.plan.items()
        if value != plain.get(name) and name not in used and name not in UNCHANGED
    ]
    lines = [f"no switch: {name} = {value_text(name, deployment.plan[name])}{_doc(name)}" for name in left]
    if deployment.hardware:
        text = ", ".join(f"{name} = {engineering(value)}" for name, value in deployment.hardware.items())
        lines.append(f"hardware that the design is of (SI): {text}")
    if not deployment.feasible:
        broken = ", ".join(deployment.broken) or "a limit of its study or a rule of its plan"
        lines.insert(0, f"NOT FEASIBLE: this design breaks {broken}; it was exported all the same (--anyway)")
    return lines


def _doc(name: str) -> str:
    text = str((plan_field(name) or {}).get("doc", ""))
    return f" ({text})" if text else ""


# A command for a shell with comments above it, and the options that a target's parser knows.


OPTIONS = Path(__file__).resolve().parent / "engine_options"
PACKAGES = {
    "vllm": "vllm",
    "vllm_bench": "vllm",
    "sglang": "sglang",
    "megatron": "megatron-core",
    "torchtitan": "torchtitan",
    "maxtext": "maxtext",
}
UNCHECKED = {
    "trtllm": "not checked: no package with the parser of TensorRT-LLM was to be had; names as of commit 00209af"
}
WIDTH = 116
FILL_IN = "FILL-IN"  # begins what stands for something that this package does not know


@dataclasses.dataclass
class Command:
    """One program and its switches; `taken` are the plan's fields that they say, `notes` what is to be known of it."""

    program: list[str]
    switches: list[tuple[str, ...]] = dataclasses.field(default_factory=list)
    taken: set[str] = dataclasses.field(default_factory=set)
    notes: list[str] = dataclasses.field(default_factory=list)

    def add(self, option: str, value: object = None, *taken: str) -> None:
        """A switch with its value, or values, and the fields that it says."""
        values = value if isinstance(value, tuple) else () if value is None else (value,)
        self.switches.append((option, *map(str, values)))
        self.taken.update(taken)

    def note(self, text: str, *taken: str) -> None:
        """A comment, and the fields that it says."""
        self.notes.append(text)
        self.taken.update(taken)

    def words(self) -> list[str]:
        """Program and switches, as a process takes them."""
        return [*self.program, *(word for switch in self.switches for word in switch)]

    def text(self) -> str:
        """Comments, then the command, a switch a line."""
        lines = [" ".join(map(quoted, self.program))]
        lines += [" ".join(map(quoted, switch)) for switch in self.switches]
        return comments(self.notes) + " \\\n  ".join(lines) + "\n"


def quoted(word: str) -> str:
    """For a shell; what begins with $ or holds $(( is left for it to fill in."""
    return f'"{word}"' if "$" in word and '"' not in word else shlex.quote(word)


def comments(notes: Iterable[str]) -> str:
    """Each on lines of its own."""
    wrapped = [textwrap.wrap(note, WIDTH, break_long_words=False, break_on_hyphens=False) for note in notes]
    return "".join(f"# {'  ' if at else ''}{line}\n" for lines in wrapped for at, line in enumerate(lines))


@functools.cache
def supported_options(target: str) -> dict[str, tuple[str, ...]]:
    """Options of a target's newest parser with their choices, empty where any value goes."""
    newest = checked_version(target)
    with (OPTIONS / f"{target}.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["version"] == newest]
    return {row["option"]: tuple(filter(None, row["choices"].split("|"))) for row in rows}


@functools.cache
def checked_version(target: str) -> str:
    """Version of the newest package whose parser was read."""
    with (OPTIONS / f"{target}.csv").open(newline="", encoding="utf-8") as file:
        versions = {row["version"] for row in csv.DictReader(file)}
    numbers = {one: tuple(map(int, one.split("."))) for one in versions if one.replace(".", "").isdigit()}
    return max(numbers, key=lambda one: numbers[one])


def opening(deployment: Deployment, target: str) -> list[str]:
    """Opening lines of an export: how far its switches were checked, the design and its model, values to fill in."""
    model = str(deployment.model.get("name", "a model without a name"))
    lines = [f"{deployment.title}: {model} on {deployment.devices:,} x {deployment.accelerator or 'accelerator'}"]
    if deployment.of("prefill_devices"):
        lines[0] += f" for decodes, and {deployment.of('prefill_devices'):,} accelerators more for prefill"
    lines.append(f"taken: nodes of {deployment.domain} accelerators, as many as the fastest network joins; set yours")
    lines.insert(0, checked_text(target))
    if not deployment.hub and deployment.work in SERVED:
        lines.append(f"{FILL_IN}: name or folder of the model's weights, which this run does not know")
    return lines


def checked_text(target: str) -> str:
    """Statement of how far a target's switches were checked."""
    if target in UNCHECKED:
        return UNCHECKED[target]
    package = f"{PACKAGES[target]} {checked_version(target)}"
    return f"switches as the parser of {package} takes them, read from its package; no engine was started"


def closing(deployment: Deployment, commands: Iterable[Command]) -> list[str]:
    """Notes on what no command said."""
    return unsaid(deployment, {name for command in commands for name in command.taken})


def script(deployment: Deployment, target: str, commands: list[Command], more: Iterable[str] = ()) -> str:
    """Comments about the whole, then each command under its own."""
    head = comments([*opening(deployment, target), *more, *closing(deployment, commands)])
    return "\n".join([head, *(command.text() for command in commands)])
