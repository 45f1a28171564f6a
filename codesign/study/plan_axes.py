"""Plan axes made from model, machine and engine: for each field one rule that says which values are possible.

A space lists the values of a plan field, or names them by a word:

    every     all values of the rule below
    powers    those among them that are powers of two

Fields are then joined by the rules of the workload, which hold what the engine or trainer can run: what occurs in no
legal plan is in no axis. So degrees are divisors of the device counts, among them 72 and 36 where a rack has 72
devices; which of them divide heads, columns, layers and experts is decided once, where plans are checked.

Batches and step budgets are numbers that an engine would take any value of: the powers of two and one and a half
times these, up to what vLLM sets where nothing is said.

Source: defaults of `--max-num-seqs` and `--max-num-batched-tokens`, [vllm_source].
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.errors import ConfigError, suggestion
from ..model.scenario import Scenario
from ..model.workloads.plan_fields import plan_numbers, words_of
from .feasible_plans import Rules, TooManyPlans

__all__ = ["EVERY", "POWERS", "SIZES", "WORDS", "axes_text", "check_word", "generated_axes"]

EVERY, POWERS = "every", "powers"
WORDS = (EVERY, POWERS)
MAX_SEQUENCES, MAX_TOKENS, MIN_TOKENS = 1024, 16384, 64
MAX_CHUNKS = 8  # model chunks of a pipeline stage
BOX = 8  # devices in which pools of their own are bought
MOST_BOXES = 16  # of a pool up to which every number of them is a value
MOST_CUT = 8  # ranks to one expert, a node
MOST_NAMED = 12  # device counts that are named one by one


@dataclass(frozen=True)
class AxisInputs:
    """Facts of model, machine and engine that the rules of the axes look at.

    devices: counts of the job; pools: counts of a pool for prompts; domain: devices of the largest scale-up domain;
    experts: 0 of a dense model; batch: sequences of a training step, 0 where it serves.
    """

    devices: tuple[int, ...]
    pools: tuple[int, ...]
    domain: int
    layers: int
    experts: int
    batch: int
    groups: bool

    @property
    def trains(self) -> bool:
        """True if a model is trained."""
        return self.batch > 0


def _divisors(counts: Sequence[int], most: float = math.inf) -> list[int]:
    """Divisors of any of these counts, 1 among them."""
    return sorted({
        each
        for count in (*counts, 1)
        for low in range(1, math.isqrt(count) + 1) if count % low == 0
        for each in (low, count // low) if each <= most
    })  # fmt: skip


def _steps(least: int, most: int) -> list[int]:
    """Powers of two and one and a half times these."""
    powers = [2**power for power in range(int(math.log2(most)) + 1)]
    return sorted(each for each in {*powers, *(3 * power // 2 for power in powers[1:])} if least <= each <= most)


def _tensor(inputs: AxisInputs, counts: Sequence[int]) -> list[int]:
    return _divisors(counts, inputs.domain if inputs.trains else math.inf)


def _experts(inputs: AxisInputs, counts: Sequence[int]) -> list[int]:
    return _divisors(counts, inputs.experts * (1 if inputs.trains else 2)) if inputs.experts else [1]


def _cuts(inputs: AxisInputs, counts: Sequence[int]) -> list[int]:
    return [0, *_divisors(counts, MOST_CUT)] if inputs.experts else [0]


def _pools(inputs: AxisInputs) -> list[int]:
    boxes = max(inputs.devices[-1] // BOX, 1)
    return [0, *(BOX * each for each in (range(1, boxes + 1) if boxes <= MOST_BOXES else _steps(1, boxes)))]


Rule = Callable[[AxisInputs], Sequence[int]]
AXES: Mapping[str, Rule] = {
    "tp": lambda inputs: _tensor(inputs, inputs.devices),
    "pp": lambda inputs: _divisors(inputs.devices, inputs.layers),
    "cp": lambda inputs: _divisors(inputs.devices),
    "ulysses": lambda inputs: _divisors(inputs.devices) if inputs.trains else [1],
    "decode_cp": lambda inputs: [1] if inputs.trains else _divisors(inputs.devices),
    "ep": lambda inputs: _experts(inputs, inputs.devices),
    "etp": lambda inputs: _cuts(inputs, inputs.devices),
    "attention_dp": lambda inputs: _divisors(inputs.devices) if inputs.groups else [1],
    "micro_batch": lambda inputs: _steps(1, inputs.batch or MAX_SEQUENCES),
    "token_budget": lambda inputs: _steps(MIN_TOKENS, MAX_TOKENS),
    "virtual_stages": lambda inputs: range(1, MAX_CHUNKS + 1),
    "recompute": lambda inputs: range(len(words_of("recompute"))),
    # Megatron-LM trains no mixture of experts with tensor ranks whose activations are whole (`MoELayer.forward` raises)
    "sequence_parallel": lambda inputs: (1,) if inputs.trains and inputs.experts else (0, 1),
    "zero": lambda inputs: (0, 1, 2, 3),
    "offload_optimizer": lambda inputs: (0, 1),
    "prefill_devices": _pools,
    "prefill_tp": lambda inputs: _tensor(inputs, inputs.pools),
    "prefill_pp": lambda inputs: _divisors(inputs.pools, inputs.layers),
    "prefill_ep": lambda inputs: _experts(inputs, inputs.pools),
    "prefill_etp": lambda inputs: _cuts(inputs, inputs.pools),
    "prefill_attention_dp": lambda inputs: _divisors(inputs.pools) if inputs.groups else [1],
    "prefill_token_budget": lambda inputs: _steps(MIN_TOKENS, MAX_TOKENS),
}
"""Field -> its possible values; what breaks a rule of the workload in every plan is dropped afterwards."""

NEVER_DECIDE = ("token_budget", "prefill_token_budget")
"""Fields that are left out of the join: no rule that a word may break depends on them alone."""


def check_word(field: str, word: str) -> None:
    """Refuse a word that names no axis, or one of a field without a rule.

    Raises:
        ConfigError: says which words there are and which fields have a rule.
    """
    if word not in WORDS:
        raise ConfigError(
            f"space.plan.{field} = {word!r} must be a list of values, or one of {', '.join(WORDS)}"
            f"{suggestion(word, WORDS)}"
        )
    if field not in AXES:
        raise ConfigError(
            f"space.plan.{field} = {word}: no rule says which values {field} may have, list them; fields with a rule: "
            + ", ".join(AXES)
        )


def generated_axes(plan: Mapping[str, Any], scenario: Scenario) -> dict[str, Any]:
    """The lists of a space in which some fields are named by a word, in its order; other lists stay as they are.

    Args:
        plan: field -> list of values or a word.
        scenario: model, machine and engine.

    Raises:
        ConfigError: a word that is none, a field without a rule, or no value that any legal plan has.
    """
    named = {field: word for field, word in plan.items() if isinstance(word, str)}
    for field, word in named.items():
        check_word(field, word)
    if not named:
        return dict(plan)
    if not hasattr(getattr(scenario.workload, "model", None), "feed_forward"):
        field, word = next(iter(named.items()))
        kind = type(scenario.workload).__name__
        raise ConfigError(
            f"space.plan.{field} = {word}: rules of axes are for transformers, not for {kind}: list values"
        )
    inputs, lists = _inputs(plan, scenario), dict(plan)
    for field in sorted(named, key=lambda field: field != "prefill_devices"):  # whose values decide about its pool
        lists[field] = _of_word(named[field], list(AXES[field](inputs)))
        if field == "prefill_devices":
            inputs = dataclasses.replace(inputs, pools=_counts(lists[field], inputs.devices))
    lists |= _in_legal_plans(lists, named, scenario, inputs)
    return lists


def _of_word(word: str, values: list[int]) -> list[int]:
    return [each for each in values if word == EVERY or each & (each - 1) == 0]


def _in_legal_plans(
    lists: Mapping[str, Any], named: Mapping[str, str], scenario: Scenario, inputs: AxisInputs
) -> dict[str, list[int]]:
    """Values of the named fields that some legal plan has.

    Raises:
        ConfigError: none is legal.
    """
    joined = {name: plan_numbers(name, values) for name, values in lists.items() if name not in NEVER_DECIDE}
    rules, result = Rules(joined, scenario), dict[str, list[int]]()
    try:
        for index, name in enumerate(joined):
            if name in named:
                result[name] = [lists[name][each] for each in rules.tables.possible(index)]
    except TooManyPlans:
        return {}
    if not all(result.values()):
        total, refused = math.prod(len(values) for values in joined.values()), rules.refused
        worst = max(refused, key=lambda rule: refused[rule])
        why = f"none of {total:,} plans is legal; the rule {worst!r} alone refuses {refused[worst] / total:.0%}"
        for name in joined:
            if name not in named and name in AXES and (others := _possible(name, joined, scenario, inputs)):
                said = f"space.plan.{name} = {list(lists[name])}"
                raise ConfigError(f"{said}: no value is possible: {why}; possible: {_some(list(map(str, others)))}")
        field, word = next(iter(named.items()))
        raise ConfigError(f"space.plan.{field} = {word}: no value is possible: {why}")
    return result


def _possible(name: str, lists: Mapping[str, Any], scenario: Scenario, inputs: AxisInputs) -> list[int]:
    """Values of a field, of all that its rule allows, that some legal plan has beside these lists."""
    values = list(AXES[name](inputs))
    try:
        tables = Rules({**lists, name: plan_numbers(name, values)}, scenario).tables
        return [values[each] for each in tables.possible(list(lists).index(name))]
    except TooManyPlans:
        return []


def _inputs(plan: Mapping[str, Any], scenario: Scenario) -> AxisInputs:
    workload, device_count = scenario.workload, scenario.plan.device_count
    listed = plan.get("device_count")
    alone = [float(scenario.cluster.device_count if device_count is None else device_count)]
    devices = _counts(alone if listed is None or isinstance(listed, str) else listed, ())
    pools = plan.get("prefill_devices", [float(getattr(scenario.plan, "prefill_devices", 0.0))])
    fabrics = [level.fabric for level in scenario.cluster.network.values()]
    layouts = getattr(workload, "layouts", None)
    model = workload.model
    return AxisInputs(
        devices, _counts([] if isinstance(pools, str) else pools, ()),
        int(getattr(fabrics[0], "endpoints", None) or devices[-1]),
        int(model.layers), int(getattr(model.feed_forward, "experts", 0)), int(getattr(workload, "global_batch", 0)),
        layouts is not None and layouts.runs_groups(model),
    )  # fmt: skip


def _counts(values: Sequence[Any], otherwise: Sequence[int]) -> tuple[int, ...]:
    result = sorted({int(float(value)) for value in values if float(value) >= 1})
    return tuple(result) or tuple(otherwise) or (1,)


def axes_text(plan: Mapping[str, Sequence[Any]], words: Mapping[str, str], scenario: Scenario) -> str:
    """A space with generated axes in words, without its size; empty where every axis was listed by hand.

    Args:
        plan: field -> values.
        words: fields whose values were made from a word.
        scenario: whose engine and devices are named.
    """
    degrees = [name for name in words if name not in SIZES]
    if not degrees:
        return ""
    degrees = [name for name in degrees if len({*plan[name]}) > 1] or degrees  # of a dense model `ep` is 1
    layouts = getattr(scenario.workload, "layouts", None)
    who = f"{layouts.engine} runs" if layouts is not None and layouts.engine else "the rules of plans allow"
    inputs = _inputs(plan, scenario)
    devices = inputs.devices
    counts = [f"{count:,}" for count in devices]
    few = _some(counts)
    step = devices[0]
    if len(devices) > 2 and list(devices) == list(range(step, devices[-1] + 1, step)):
        where = f"{counts[0]}, {counts[1]} ... {counts[-1]}"
    else:
        where = few if len(counts) <= MOST_NAMED else f"{len(counts)} counts from {counts[0]} to {counts[-1]}"
    powers = [words[name] == POWERS for name in degrees]
    uncut = layouts is not None and layouts.whole_experts
    *most, last = [
        f"{name}{_left_out(name, plan[name], inputs, powers=power and not all(powers), uncut_experts=uncut)}"
        for name, power in zip(degrees, powers, strict=True)
    ]
    by = (
        f"{', '.join(most)} and {last}" if most else last
    )  # other fields of the plan, which trainers have many of, stay
    text = f"every layout by {by} that {who} on {where} device{'' if counts == ['1'] else 's'}"
    text += " with degrees that are powers of two" if all(powers) else ""
    parts = [_sizes(name, plan[name], words.get(name, "")) for name in SIZES if name in plan]
    names = {*words, *SIZES, "device_count"}
    parts += [f"{name} {_listed(values)}" for name, values in plan.items() if name not in names]
    return f"{text}, {', '.join(parts)}" if parts else text


SIZES = {"micro_batch": "batch", "token_budget": "step budget", "prefill_token_budget": "step budget of prompts"}


def _left_out(name: str, values: Sequence[Any], inputs: AxisInputs, *, powers: bool, uncut_experts: bool) -> str:
    """Words for the values of a field that its axis leaves out, ` (up to 8)`; empty where it has every value.

    Args:
        name: of the field.
        values: of its axis.
        inputs: of its rule.
        powers: it has powers of two alone, and other fields have more.
        uncut_experts: the engine cuts no experts that it spreads.
    """
    if name == "prefill_devices":  # any count is a pool
        return f" ({_some([f'{value:,}' for value in values])})"
    if name == "offload_optimizer":
        return " (0 or 1)"
    most = {"virtual_stages": MAX_CHUNKS}
    if inputs.trains:
        most["tp"] = inputs.domain
    if inputs.experts and not uncut_experts:
        most |= {"etp": MOST_CUT, "prefill_etp": MOST_CUT}
    beyond = name == "virtual_stages" or max(*inputs.devices, *inputs.pools) > most.get(name, math.inf)
    said = [*(["powers of two"] if powers else []), *([f"up to {most[name]}"] if name in most and beyond else [])]
    return f" ({', '.join(said)})" if said else ""


def _some(texts: Sequence[str]) -> str:
    return " or ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def _sizes(name: str, values: Sequence[Any], word: str) -> str:
    """`20 batch sizes to 1,024`."""
    if not word or len(values) < 3:
        return f"{name} {_listed(values)}"
    many = {"batch": "batch sizes"}.get(SIZES[name], f"{SIZES[name]}s")
    return f"{len(values)} {many} from {values[0]:,} to {values[-1]:,}"


def _listed(values: Sequence[Any]) -> str:
    texts = [str(value) for value in values]
    return ", ".join(texts) if len(texts) < 5 else f"{texts[0]}, {texts[1]} ... {texts[-1]}"
