"""Measured runs of tables of any source (`measurements.folder`): a row is a command, and its metrics are the command's.

Nothing is modelled here: a row chooses options and numbers, `codesign evaluate` predicts the metrics that it holds. A
row that names no workload has the one that its columns mean: a request rate `at_rate`, a global batch `training`, else
`continuous`; with devices that prefill, those of two pools. A row that states how many requests were sent is a run from
its first to its last, as `codesign simulate --num-prompts` simulates. Training whose tensor ranks are stated and stages
are not has one stage. What no row says is as the command line takes it, the framework that people run among it.
"""

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...config import scenario_from_config
from ...config.engines import EngineStart, engine_overrides
from ...config.groups import accelerator_option as accelerators_option
from ...config.groups import available
from ...config.least_devices import sized
from ...config.legal_start import legal_start
from ...config.memory_advice import changes_that_fit, shortage
from ...config.model_names import OPTIONS, hub_name, weight_format
from ...config.starting import published_formats
from ...core import fields
from ...core.errors import ConfigError, DataError
from ...model.scenario import Scenario
from ..measurements import schema
from ..measurements.columns import (
    BATCH,
    CLIENTS,
    DATA_RANKS,
    FLAGS_OF_ATTENTION,
    MEMORY,
    SPECULATION,
    YES,
    choice_of,
    is_recognised,
    lacks_unit,
    metric_of,
    not_stated,
    number_path,
    plain,
    share_of_memory,
)
from ..measurements.folder import files, is_runs
from .row_overrides import PricedRun, accelerator_option, configured_model, option_of
from .served_rows import BLOCKS, PUBLISHED, PUBLISHED_AS, in_blocks

__all__ = ["MEMORY_METRICS", "MeasuredRun", "run_of", "run_tables"]


MEMORY_METRICS = {name for name, _ in MEMORY.values()}
FORMATS = {"fp8": "fp8", "fp4": "fp4", "nvfp4": "fp4", "bf16": "bf16", "fp16": "bf16"}
FINITE = ("continuous", "at_rate")  # workloads whose requests can be counted
RATE, PLACES, QUEUED = "workload.arrivals_per_s", "plan.micro_batch", "workload.clients.queued_ratio"
USUAL_PLACES = 256  # sequences that an engine takes at a time where nobody says, as vLLM does
OF_A_DEVICE = "tokens_per_s_per_device"
DEVICES = "cluster.device_count"
NODE = 8.0  # devices of which one engine takes all, where no degree is stated (assumed)
UNSTATED = ("null", "n/a", "na", "-", "unknown")
ENDLESS = ("inf", "infinity", "infinite")
NO_FORMAT = ("auto", "", "none", "no", "false", "unset")
TWO_BYTES = dict.fromkeys(
    ("bf16", "bfloat16", "fp16", "float16", "half", "torch.bfloat16", "torch.float16", "fp16/bf16", "bf16-mixed"),
    "bf16",
)
WORDED = ("plan.recompute",)
THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")
COUNTED = re.compile(
    r"(?P<tpu>(?i:tpu)[- ]?v?\d+[a-z]?)-(?P<slice>\d{1,5})"
    r"|(?:(?P<before>\d{1,5}) ?[x*] ?)?(?P<name>.*?[A-Za-z0-9)])(?:(?<=[\d)B ]) ?[x*] ?(?P<behind>\d{1,5}))?"
)
ORCHESTRATORS = ("dynamo_", "mori_", "nim_", "triton_")
ENGINES_MEANT = {
    "trt": "trtllm", "tensorrt": "trtllm", "tensorrt_llm": "trtllm", "tensorrtllm": "trtllm", "trt_llm": "trtllm",
    "openai": "vllm", "openai_chat": "vllm", "vllm_v1": "vllm", "vllm_chat": "vllm", "sglang_oai": "sglang",
    "sgl": "sglang", "maxtext": "maxtext",
}  # fmt: skip
"""Engines by other names; of one that is not modelled, what people run on the device stands in."""
PARTS = ("compute", "weights", "kv_cache")
WORD = re.compile(r"[a-z]\w*")  # of a path that is chosen by a word, such as plan.recompute=full
LAYOUT = ("plan.tp", "plan.pp", "plan.cp")
"""Whose product is the number of devices where no column states it."""


class MeasuredRun(NamedTuple):
    """A row: where it stands, its design, and what was measured, by metric in SI units.

    `requests` are those of a run with a beginning and an end, which come at a `rate` or, where that is 0, from clients;
    `carried` is the text of columns that choose and measure nothing, such as a source.
    """

    location: str
    run: PricedRun
    measured: dict[str, float]
    group: str
    requests: int = 0
    rate: float = 0.0
    carried: str = ""


def run_tables(directory: Path, typed: Sequence[Path], messages: list[str]) -> list[MeasuredRun]:
    """Rows of all tables below a folder that hold measured runs and are of no other kind.

    Args:
        known: tables of other kinds.
        messages: rows and columns that are set aside are told here.
    """
    result: list[MeasuredRun] = []
    composed: dict[tuple[str, ...], Scenario] = {}
    for path in files(directory):
        shown = path.relative_to(directory).as_posix()
        if path in typed or not _holds_runs(path, shown):
            continue
        table = schema.cells(path, shown)
        aside = [name for name in table.header if not is_recognised(name)]
        if aside:
            messages.append(f"{shown}: column(s) {', '.join(aside)} carried along")
        for name in filter(lacks_unit, aside):
            messages.append(f"{shown}: column {name} states no unit: called {name}_ms or {name}_s it would be compared")
        lacking = not_stated(table.header, trains=_says_training(table.header, table.rows))
        if lacking:
            messages.append(
                f"{shown}: {', '.join(lacking)} not stated: compared with what `codesign evaluate` takes by itself"
            )
        for cells, line in zip(table.rows, table.lines, strict=True):
            location, row = f"{shown}, line {line}", dict(zip(table.header, cells, strict=True))
            if engine := _unknown_engine(row):
                messages.append(f"{location}: framework {engine!r} is not modelled, what usually runs there is taken")
            try:
                one, count = _counted_run(run_of(row, location))
                one, legal_line = _with_legal_plan(one, composed)
                one, fitting = _that_fits(one)
                messages += [f"{location}: {line}" for line in (count, legal_line, fitting) if line]
                result.append(one)
            except ConfigError as error:
                messages.append(f"{location}: set aside, {error}")
    return result


def _says_training(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """True if a column `workload` says that runs train."""
    at = [number for number, name in enumerate(header) if choice_of(name) == "workload"]
    return any(cells[number].strip().startswith("training") for number in at for cells in rows)


def _unknown_engine(row: Mapping[str, str]) -> str:
    """The framework that a row names and that is not modelled; empty where there is none."""
    named = [cell.strip() for column, cell in row.items() if choice_of(column) == "framework"]
    return next((name for name in named if name.lower() not in ("", *UNSTATED) and not _option("framework", name)), "")


def _counted_run(one: MeasuredRun) -> tuple[MeasuredRun, str]:
    """The run on as many devices as the command line takes where a row says nothing of how many, and a line on it."""
    if DEVICES in one.run.numbers:
        return one, ""
    overrides = one.run.overrides()
    least, line = sized(scenario_from_config(*overrides), overrides)
    taken = {path: float(value) for path, _, value in (text.partition("=") for text in least)}
    return one._replace(run=PricedRun(one.run.chosen, one.run.numbers | taken)), line


def _with_legal_plan(one: MeasuredRun, composed: dict[tuple[str, ...], Scenario]) -> tuple[MeasuredRun, str]:
    """The run, with the plan that the command line takes where the one that its workload brings breaks a rule.

    Args:
        one: a run.
        composed: scenarios of the same choices, which are kept.

    Returns:
        (run, a line on what was taken instead, empty where nothing was)
    """
    chosen, numbers = one.run
    if chosen not in composed:
        composed[chosen] = scenario_from_config(*one.run.overrides())
    scenario = fields.replace(composed[chosen], dict(numbers))
    legal, message = legal_start(scenario, one.run.overrides())
    if not message:
        return one, ""
    before = {path: float(value) for path, _, value in fields.walk(scenario.plan, "plan")}
    after = {path: float(value) for path, _, value in fields.walk(legal.plan, "plan")}
    taken = {path: value for path, value in after.items() if value != before.get(path)}
    return one._replace(run=PricedRun(chosen, numbers | taken)), message


def _that_fits(one: MeasuredRun) -> tuple[MeasuredRun, str]:
    """The run, as it must have been where it does not fit as stated: it was measured, so it did.

    Clients for whom a cache has no room wait; what a row says nothing of takes the smallest change that fits.

    Args:
        one: a run.

    Returns:
        (run, a line on what was taken, empty where it fits or no change of what is not stated would make it)
    """
    chosen, numbers = one.run
    if one.requests or MEMORY_METRICS.issuperset(one.measured):
        return one, ""
    scenario = scenario_from_config(*one.run.overrides())
    if not shortage(scenario):
        return one, ""
    for change in changes_that_fit(scenario):
        taken = dict(text.split("=", 1) for text in change)
        places = float(taken.get(PLACES, 0.0)) if PLACES in numbers and {*taken} == {PLACES} else 0.0
        if places and RATE not in numbers:
            taken_numbers = {PLACES: places, QUEUED: numbers[PLACES] / places - 1}
            line = f"a cache has room for {places:g} of {numbers[PLACES]:g} clients, the others wait"
            return one._replace(run=PricedRun(chosen, numbers | taken_numbers)), line
        if not {*taken} & {*numbers, DEVICES} and not any(word.partition("=")[0] in taken for word in chosen):
            words = tuple(text for text in change if not _is_number(taken[text.partition("=")[0]]))
            taken_numbers = {path: float(value) for path, value in taken.items() if _is_number(value)}
            line = f"it does not fit as stated; priced with {', '.join(change)}, of which it says nothing"
            return one._replace(run=PricedRun((*chosen, *words), numbers | taken_numbers)), line
    return one, ""


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _holds_runs(path: Path, shown: str) -> bool:
    try:
        return is_runs(schema.cells(path, shown, only_header=True).header)
    except DataError:
        return False


class _Cells:
    """Cells of a row by what they say: options, number formats, numbers by path, words by path, metrics."""

    def __init__(self, row: Mapping[str, str]) -> None:
        self.chosen, self.words = dict[str, str](), dict[str, str]()
        self.numbers, self.measured = dict[str, float](), dict[str, float]()
        self.formats, self.share, self.attention, self.clients = dict[str, str](), 0.0, False, False
        self.between = list[tuple[str, float, str]]()
        for column, cell in row.items():
            text = cell.strip()
            if text and text.lower() not in UNSTATED:
                self._read(column, text)
        for name, value, column in self.between:  # between single tokens, where whole answers say nothing
            if name not in self.measured:
                _set(self.measured, name, value, column)

    def _read(self, column: str, text: str) -> None:
        metric, path, choice, name = metric_of(column), number_path(column), choice_of(column), plain(column)
        if share_of_memory(column):
            self.share = _number(text, column)
        elif name in FLAGS_OF_ATTENTION:
            self.attention = bool(_yes(text, column))
        elif choice == "precision":
            self.formats[name] = text.lower()
        elif choice is not None:
            _set(self.chosen, choice, text, column)
        elif metric is not None:
            value = _yes(text, column) if metric.name == "fits" else metric.unit * _number(text, column)
            if "itl" in name.split("_"):
                self.between.append((metric.name, value, column))
            else:
                _set(self.measured, metric.name, value, column)
        elif path is not None and (column == path or path in WORDED) and WORD.fullmatch(text.lower()):
            _set(self.words, path, text.lower(), column)
        elif path == RATE and text.lower() in ENDLESS:
            _set(self.numbers, path, math.inf, column)
        elif path is not None and text.lower() not in ("none", "nan"):
            self.clients = self.clients or name in CLIENTS
            _set(self.numbers, path, _number(text, column), column)

    def number_format(self) -> str:
        """The number format that a row states; empty where it states none, or the two bytes that activations have.

        Raises:
            ConfigError: two columns that disagree.
        """
        said = {name: text for name, text in self.formats.items() if text not in NO_FORMAT}
        quantised = {name: text for name, text in said.items() if text not in TWO_BYTES}
        meanings = {_format_meant(text) for text in quantised.values()}
        if len(meanings) > 1:
            names = " and ".join(f"{name} = {text}" for name, text in quantised.items())
            raise ConfigError(f"{names} are two number formats")
        if quantised:
            return meanings.pop()
        return TWO_BYTES[said["precision"]] if "precision" in said else ""


def run_of(row: Mapping[str, str], location: str) -> MeasuredRun:
    """A row as a design and its metrics.

    Raises:
        ConfigError: a device, model, format or number that is none; two columns that disagree; no metric.
    """
    cells = _Cells(row)
    chosen, numbers, measured, words = cells.chosen, cells.numbers, cells.measured, cells.words
    if not measured:
        raise ConfigError("no metric is stated")
    guesses = row.get(SPECULATION, "").strip().lower()
    if guesses not in ("", "none") and "workload.accepted_tokens" not in numbers:
        raise ConfigError(
            f"it speculates ({guesses}), but how many tokens are accepted is not stated (workload.accepted_tokens, of "
            "workload.verified_tokens)"
        )
    if number_format := cells.number_format():
        chosen["precision"] = number_format
    if "accelerator" in chosen:
        chosen["accelerator"] = _counted(chosen["accelerator"], numbers)
    serves = "workload.global_batch" not in numbers and not chosen.get("workload", "").startswith("training")
    _batch(numbers, serves=serves)
    clients = numbers.get(PLACES, 0.0)
    if serves:
        _replicas(numbers, cells)
    requests, rate = round(numbers.pop("requests", 0.0)), 0.0
    if requests and chosen.get("workload", "continuous").startswith(FINITE) and serves:
        rate = numbers.pop(RATE, 0.0)
        if math.isinf(rate) and cells.clients:  # as fast as clients are free
            rate = 0.0
        if clients and not rate:  # dealt to the replicas by turns
            numbers[PLACES] = clients
        if rate:  # who waits for a place is seen as it comes
            numbers.setdefault(PLACES, float(min(requests, USUAL_PLACES)))
            chosen["workload"] = chosen.get("workload", "continuous").replace("at_rate", "continuous")
    else:
        requests = 0
    if math.isinf(numbers.get(RATE, 0.0)):
        del numbers[RATE]
        if PLACES not in numbers:
            raise ConfigError(
                "requests come all at once, but neither how many (num_prompts) nor a concurrency is stated"
            )
    run = _run(chosen, numbers)
    run = run._replace(chosen=(*run.chosen, *(f"{path}={word}" for path, word in words.items())))
    if MEMORY_METRICS & set(measured):
        run = run._replace(chosen=(*run.chosen, *_started(chosen, numbers, run, cells.share)))
    if chosen.get("workload") == "static_batch" and "e2e_s" in measured:  # all requests of a batch end with it
        measured.setdefault("time_s", measured.pop("e2e_s"))
    _rates(measured, run)
    group = f"{chosen['accelerator']} {chosen.get('model', '')}"
    carried = ", ".join(cell.strip() for column, cell in row.items() if cell.strip() and not is_recognised(column))
    return MeasuredRun(location, run, measured, group, requests, rate, carried)


def _counted(device: str, numbers: dict[str, float]) -> str:
    """The name of a device without the number of them that some write beside it: `8xH100`, `H100 x 8`, `TPU v6e-8`."""
    match = COUNTED.fullmatch(device.strip())
    if (
        accelerators_option(device)
        or match is None
        or not (count := match["before"] or match["behind"] or match["slice"])
    ):
        return device
    if numbers.setdefault(DEVICES, float(count)) <= 0:
        raise ConfigError(f"{device!r}: no device")
    return match["name"] or match["tpu"]


def _batch(numbers: dict[str, float], *, serves: bool) -> None:
    """`batch_size` as the clients of what serves, and the sequences of a step of what trains."""
    batch = numbers.pop(BATCH, 0.0)
    if batch and not serves:
        numbers.setdefault("workload.global_batch", batch)
    elif batch and RATE not in numbers:
        numbers.setdefault(PLACES, batch)


def _replicas(numbers: dict[str, float], cells: _Cells) -> None:
    """Ranks that attend sequences of their own, replicas, and the clients of each.

    Where data ranks are part of an engine (SGLang's `enable_dp_attention`) they divide its ranks; else they are
    replicas beside each other, which share the clients. An engine whose degrees nobody states takes all devices of a
    node.
    """
    data, tp = numbers.pop(DATA_RANKS, 0.0), numbers.get("plan.tp", 0.0)
    if cells.attention and tp and "plan.attention_dp" not in numbers:
        numbers["plan.attention_dp"] = data if 1 < data <= tp else tp
        data = 0.0
    ranks = math.prod(numbers.get(path, 1.0) for path in LAYOUT)
    if data > 1:
        numbers.setdefault(DEVICES, ranks * data)
    devices = numbers.get(DEVICES, 0.0)
    degrees = {*LAYOUT, "plan.ep", "plan.attention_dp", "plan.prefill_devices"}
    if devices and not degrees & {*numbers} and data <= 1 and devices <= NODE and devices.is_integer():
        numbers["plan.tp"] = devices
    elif devices > ranks and cells.clients and PLACES in numbers and "plan.prefill_devices" not in numbers:
        numbers[PLACES] = max(numbers[PLACES] * ranks / devices, 1.0)


def _rates(measured: dict[str, float], run: PricedRun) -> None:
    """Rates as the model has them: tokens of all devices of a step, arithmetic as a share of the peak.

    Raises:
        ConfigError: sequences of what does not train.
    """
    devices, training = run.numbers.get(DEVICES), any(word.startswith("workload=training") for word in run.chosen)
    if training and "all_tokens_per_s_per_device" in measured:
        measured.setdefault(OF_A_DEVICE, measured.pop("all_tokens_per_s_per_device"))
    if training and devices and OF_A_DEVICE in measured:
        measured["tokens_per_s"] = devices * measured.pop(OF_A_DEVICE)
    every = {name: measured.pop(f"all_{name}", 0.0) for name in ("tokens_per_s", OF_A_DEVICE)}
    if every["tokens_per_s"] and training:
        measured.setdefault("tokens_per_s", every["tokens_per_s"])
    elif any(every.values()):  # prompts and answers; of equal requests each in proportion
        work: Any = scenario_from_config(*run.overrides()).workload
        share = float(work.output_tokens) / (float(work.input_tokens) + float(work.output_tokens))
        for name, value in every.items():
            if value:
                measured.setdefault(name, share * value)
    sequences = measured.pop("sequences_per_s", 0.0)
    flops = 1e12 * measured.pop("tflops_per_device", 0.0)
    if not sequences and not flops:
        return
    if not training:
        raise ConfigError("sequences or TFLOP/s of a device are rates of training, of which no batch is stated")
    scenario: Any = scenario_from_config(*run.overrides())
    if sequences:
        measured.setdefault("tokens_per_s", sequences * float(scenario.workload.sequence))
    if flops:
        peak = float(scenario.cluster.accelerator.peak(scenario.workload.precision.compute))
        measured.setdefault("mfu", flops / peak)


def _set(into: dict[str, Any], key: str, value: Any, column: str) -> None:
    if into.setdefault(key, value) != value:
        raise ConfigError(f"{column} = {value} disagrees with {into[key]}, which another column says of {key}")


def _number(text: str, column: str) -> float:
    try:
        value = float(text.replace(",", "") if THOUSANDS.fullmatch(text) else text)
    except ValueError as error:
        raise ConfigError(f"{column} = {text!r} is no number") from error
    if not math.isfinite(value) or value < 0:
        raise ConfigError(f"{column} = {text} must be a finite number from 0 on")
    return value


def _yes(text: str, column: str) -> float:
    if text.lower() not in YES:
        raise ConfigError(f"{column} = {text!r} is neither yes nor no")
    return YES[text.lower()]


def _started(chosen: Mapping[str, str], numbers: Mapping[str, float], run: PricedRun, share: float) -> list[str]:
    """The engine's memory, as it is started on what a row says.

    Raises:
        ConfigError: a share that is none.
    """
    engine = chosen.get("engine_memory", _option("engine_memory", chosen.get("framework", "")))
    if engine not in available("engine_memory"):
        return []
    if not 0 <= share <= 1:
        raise ConfigError(f"a share of the memory of {share:g} is outside [0, 1]")
    scenario = scenario_from_config(*run.overrides())
    device, plan = scenario.cluster.accelerator, scenario.plan
    capacity = float(getattr(device.hbm, "capacity_bytes", 0.0)) or float(device.hbm.usable_bytes())
    return engine_overrides(EngineStart(
        engine, share, device.name, capacity, float(plan.tp), float(plan.pp), float(plan.token_budget),
        PLACES in numbers, "plan.token_budget" in numbers,
    ))  # fmt: skip


def _run(chosen: dict[str, str], numbers: dict[str, float]) -> PricedRun:
    if "accelerator" not in chosen:
        raise ConfigError("no accelerator is stated")
    workload = chosen.get("workload", _meant(numbers))
    words = [f"accelerator={accelerator_option(chosen['accelerator'], relatives=False)}", f"workload={workload}"]
    if workload.startswith("disaggregated"):
        words.append("prefill=same")
    if "model" in chosen:
        words.append(f"model={_model(chosen['model'], chosen.get('precision', '').lower())}")
    for group in ("framework", "kernel_correction", "scale_out", "fabric"):
        if group in chosen and (option := _option(group, chosen[group])):
            words.append(f"{group}={option}")
    named = next((word.removeprefix("model=") for word in words if word.startswith("model=")), "")
    if "precision" in chosen:
        option = chosen["precision"].lower()
        if workload != "training" and named and _published(named, option):
            option = PUBLISHED
        in_eight = workload != "training" and FORMATS.get(option) == "fp8"
        if in_eight and in_blocks(chosen.get("model", "")):
            option = BLOCKS
        number_format = FORMATS.get(option)
        if number_format is None and option in available("precision"):
            words.append(f"precision={option}")
            number_format = "bf16"
        if number_format is None:
            raise ConfigError(f"precision {chosen['precision']!r} is not modelled; allowed: {', '.join(FORMATS)}")
        cache = "fp8" if number_format == "fp4" or in_eight else number_format
        formats = dict.fromkeys(PARTS, number_format) | {"kv_cache": cache}
        if workload == "training":
            formats = {"compute": number_format}
        words += [f"workload.precision.{part}={name}" for part, name in formats.items() if name != "bf16"]
    elif named:
        words += published_formats([f"workload={workload}", f"model={chosen['model']}"])
    cache_format = chosen.get("kv_cache", "auto").lower()
    if cache_format not in NO_FORMAT:
        words = [word for word in words if not word.startswith("workload.precision.kv_cache=")]
        words.append(f"workload.precision.kv_cache={TWO_BYTES.get(cache_format) or _format_meant(cache_format)}")
    if DEVICES not in numbers and any(path in numbers for path in LAYOUT):
        numbers = numbers | {DEVICES: math.prod(numbers.get(path, 1.0) for path in LAYOUT)}
    if workload == "training" and "plan.tp" in numbers and numbers.get("plan.pp", 1.0) == 1:  # often left out
        numbers = {"plan.virtual_stages": 1.0} | numbers | {"plan.pp": 1.0}
    if workload.startswith(FINITE):
        numbers = _over_tensor_ranks(numbers)
    return PricedRun(tuple(words), numbers)


def _format_meant(text: str) -> str:
    """A number format by the name that an engine or a trainer gives it; any other text as it is."""
    if text in FORMATS or text in available("precision"):
        return text
    return OPTIONS.get(weight_format(text), text)


def _meant(numbers: Mapping[str, float]) -> str:
    """The workload that a row's columns mean."""
    if "workload.global_batch" in numbers:
        return "training"
    pools = "disaggregated_" if numbers.get("plan.prefill_devices") else ""
    if "workload.arrivals_per_s" in numbers:
        return f"{pools}at_rate"
    return f"{pools}clients" if pools else "continuous"


def _published(model: str, number_format: str) -> bool:
    """True if a row's format is that of the experts of its model's checkpoint."""
    formats = getattr(configured_model(model), "formats", None)
    return formats is not None and formats.experts.startswith(PUBLISHED_AS.get(number_format, number_format))


def _over_tensor_ranks(numbers: dict[str, float]) -> dict[str, float]:
    """Engines count the tensor ranks among those over which experts are spread: whole ones lie on each of them."""
    spread, data = numbers.get("plan.ep", 1.0), numbers.get("cluster.device_count", 1.0)
    data /= math.prod(numbers.get(path, 1.0) for path in LAYOUT)
    tp = numbers.get("plan.tp", 1.0)
    if not (spread > data >= 1 and spread == data * tp):
        return numbers
    return numbers | {"plan.etp": 1.0}


def _model(name: str, precision: str) -> str:
    """The option of a model; of a published checkpoint in its own formats, the one whose formats these are."""
    if precision not in FORMATS and precision in available("precision"):
        with contextlib.suppress(ConfigError):
            return hub_name(name).model or option_of(name)
        if name in available("model"):
            return name
    return option_of(name)


def _option(group: str, text: str) -> str:
    """The option of a group that a cell means, without a release behind it; empty of a framework that is not known."""
    plain_text = re.sub(r"[-_ ]?v?\d+(\.\d+)+\S*$", "", text.lower().strip())
    if group != "framework":
        return plain_text
    name = plain_text.replace("-", "_").replace(" ", "_")
    for before in ORCHESTRATORS:
        name = name.removeprefix(before)
    name = ENGINES_MEANT.get(name, name)
    return name if name in available(group) or name == "auto" else ""
