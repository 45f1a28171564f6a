"""Sentences about a run: its headline, a design in one line, what was asked and how sure the answer is."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.interval_text import between_text
from ..model.workloads.base import OTHERS, FamilyVocabulary
from ..model.workloads.plan_fields import plan_fields, words_of
from ..search.certificate import Certificate, Shared
from ..study.design_space import shown
from .labels import COMPONENTS, HYPHEN, METRICS, PARTS, THIN, TIERS, TIMES, Metric, metric, number, per_bit, variable
from .run_folder import PLAN_PREFIX, RunFolder

RECOMPUTE = ("no", "selective", "full")
DEGREES = ("tp", "cp", "ep", "pp", "dp")


def degrees(design: Mapping[str, Any]) -> str:
    """The parallel degrees: `TP 8 · PP 8×3 · DP 16`; degrees of one are left out, unless all are."""
    parts = []
    for name in DEGREES:
        degree = design.get(PLAN_PREFIX + name)
        if degree is None or degree != degree or (degree == 1 and name != "tp"):
            continue
        chunks = design.get(f"{PLAN_PREFIX}virtual_stages", 1) if name == "pp" else 1
        parts.append(f"{name.upper()}{THIN}{degree:g}" + (f"{TIMES}{chunks:g}" if chunks > 1 else ""))
    return " · ".join(parts)


ABSENT = -1.0  # value of a field that a plan has not
SERVING_CHOICES = {
    "token_budget": (ABSENT, f"token budget{THIN}{{:g}}"), "attention_dp": (1.0, "{:g} attention groups"),
}  # fmt: skip
"""Plan field -> value that goes without saying, and what is said of a larger one."""
POOLS = {
    "prefill": {"prefill_max_utilisation": (-2.0, "at most {:.0%}")},
    "ffn": {"ffn_micro_batches": (-2.0, "{:g} micro-batches by turns")},
}
POOL_NAMES = {"prefill": "prefill", "ffn": "FFN"}
POOL_DEGREES = {"prefill": ("prefill_tp", "prefill_pp"), "ffn": ("ffn_tp", "ffn_ep")}
CHOICES = {
    "row_shards": (1.0, "tables in {:g} by rows"), "column_shards": (1.0, "tables in {:g} by columns"),
    "ulysses": (1.0, "heads exchanged by {:g}"), "cp_order": (0.0, "contiguous contexts"),
    "decode_cp": (1.0, "cached tokens over {:g} ranks"), "etp": (0.0, f"expert TP{THIN}{{:g}}"),
    "capacity_factor": (0.0, "capacity factor {:g}"), "schedule": (0.0, "schedule {name}"),
    "first_stage_less": (0.0, "first stage {:g} layers shorter"),
    "last_stage_less": (0.0, "last stage {:g} layers shorter"), "loss_chunks": (1.0, "loss in {:g} chunks"),
}  # fmt: skip
MEMORY_CHOICES = {
    "recompute_modules": (0.0, "{name} recomputed"), "sequence_parallel": (0.0, "SP"),
    "zero": (0.0, f"ZeRO{HYPHEN}{{:g}}"),
}  # fmt: skip
OFFLOADED = {
    "weights": "weights", "activations": "activations", "optimizer": "optimizer", "kv_cache": "KV cache",
}  # fmt: skip
MODULES = {"offload_modules": (0.0, "of {name}")}
ALGORITHMS = {"tp_algorithm": (ABSENT, "TP by {name}"), "data_algorithm": (ABSENT, "data by {name}")}


def choices(design: Mapping[str, Any], words: FamilyVocabulary = OTHERS) -> str:
    """The rest of a plan: `micro-batch 2 · selective recompute · SP · ZeRO-1 · optimizer 50 % offloaded`.

    Args:
        design: column -> value.
        words: of the family of workloads, for fields of its own.
    """

    def value(name: str) -> float:
        result = design.get(PLAN_PREFIX + name)
        return float(result) if result is not None and result == result else -1.0

    def said(texts: Mapping[str, tuple[float, str]]) -> list[str]:
        """Texts of the fields that are above what goes without saying."""
        return [
            text.format(value(name), name=shown(name, value(name)) if "{name}" in text else "")
            for name, (usual, text) in texts.items()
            if value(name) > usual
        ]

    batch = "batch" if design.get("tpot_s") else "micro-batch"
    parts = said({"micro_batch": (ABSENT, f"{batch}{THIN}{{:g}}")}) + said(SERVING_CHOICES)
    for pool, rest in POOLS.items():
        if value(f"{pool}_devices") > 0:
            degrees = [name for name in POOL_DEGREES[pool] if value(name) > 1]
            cut = "".join(f"{THIN}{TIMES}{value(name):g}" for name in degrees)
            parts += [f"{POOL_NAMES[pool]} pool of {value(f'{pool}_devices'):g}{cut}, " + "".join(said(rest))]
    parts += said(CHOICES)
    parts += ["no prefetch"] if value("prefetch") == 0 else []
    if value("recompute") >= 0:
        of = value("recompute_share") if value("recompute") > 1 and value("recompute_share") >= 0 else 1.0
        part = f" of {number(of, '%', 2)} of the layers" if of < 1 else ""
        parts.append(f"{RECOMPUTE[round(value('recompute'))]} recompute{part}")
    parts += said(MEMORY_CHOICES)
    for part, label in OFFLOADED.items():
        if (share := value(f"offload_{part}")) > 0:
            parts.append(f"{label} {number(share, '%', 2)} offloaded")
    return " · ".join([*parts, *said(MODULES), *notable_choices(design, words), *said(ALGORITHMS)])


def notable_choices(design: Mapping[str, Any], words: FamilyVocabulary) -> list[str]:
    """Fields of a family's own plan: numbers above one, and choices by their names."""
    lines = []
    for name, text in words.plan.items():
        value = design.get(PLAN_PREFIX + name)
        if value is None or value != value:
            continue
        if words_of(name):
            lines.append(text.format(shown(name, value).replace("_", " ")))
        elif value > 1:
            lines.append(text.format(value))
    return lines


def hardware_names(run: RunFolder) -> list[str]:
    """Design variables that are hardware, in the frame's order."""
    plan = {"dp", *plan_fields(), *run.words.plan}
    return [name for name in run.columns(PLAN_PREFIX) if name not in plan]


def hardware_text(run: RunFolder, name: str, value: Any) -> str:
    """A hardware variable in the unit of the leaf that it moves."""
    return number(value, run.unit(name)) + per_bit(float(value), run.unit(name))


def hardware(run: RunFolder, design: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(label, value with unit) of each hardware variable of a design."""
    return [(variable(name), hardware_text(run, name, design[PLAN_PREFIX + name])) for name in hardware_names(run)]


def constraint(name: str, words: FamilyVocabulary = OTHERS) -> str:
    """A limit in words; what a part of the hardware holds, as `usage.scale_up.waveguide_power`, with the part."""
    kind, _, rest = name.removeprefix("usage.").partition(".")
    if name.startswith("usage.") and rest:
        part = COMPONENTS.get(kind, kind.replace("_", " "))
        return f"{part[:1].upper()}{part[1:]}: {rest.replace('_', ' ')}"
    return TIERS.get(kind) or metric(name, words).label


def mixed(run: RunFolder) -> Sequence[Shared]:
    """Workloads of a mix; none of any other run."""
    return (run.certificate.workloads if run.certificate else None) or ()


def job(run: RunFolder) -> str:
    """Job and devices, as far as the configuration says: `gpt3_175b training on 1,024 × h100_sxm`."""
    if mixed(run):
        return f"{len(mixed(run))} workloads on one {run.setting('cluster.accelerator.name') or 'hardware'} design"
    model = run.setting("workload.model.name") or "the workload"
    device = run.best.get("device") or run.setting("cluster.accelerator.name")
    count, pool = run.device_count, run.pool_count
    where = f" on {count - pool:,.0f} {TIMES} {device}" if device and count else ""
    where += f" and {pool:,.0f} for prefill" if where and pool else ""
    return f"{model} {run.words.job}{where}"


def bounds(run: RunFolder) -> list[tuple[str, float, bool]]:
    """(metric, bound, whether it is a smallest value) of each limit of the objective."""
    objective = run.summary.get("objective")
    source = objective if isinstance(objective, dict) else run.config.get("objective") or {}
    limits = run.summary.get("limits") or source.get("limits") or {}
    floors = run.summary.get("floors") or source.get("floors") or {}
    result = [(str(name), float(bound), False) for name, bound in limits.items()]
    return result + [(str(name), float(bound), True) for name, bound in floors.items() if name not in limits]


def objective_text(run: RunFolder) -> str:
    """The question in words."""
    goal = run.metric(run.goal).label
    want = f"the {'highest' if run.maximised else 'lowest'} {inside(goal)}"
    proven = run.certificate or Certificate()
    if proven.front is not None:
        names = [inside(run.metric(name).label) for name in proven.front.metrics]
        want = f"designs of which none is better in all of {_listed(names)}"
    if mixed(run):
        return "one hardware for " + _listed([entry.workload for entry in mixed(run)])
    if PLAN_PREFIX + proven.goal in run.designs:
        want = f"the {'most' if proven.sense == 'maximise' else 'least'} {run.metric(proven.goal).label}"
    limits = []
    for name, bound, is_floor in bounds(run):
        metric = run.metric(name)
        limits.append(f"{inside(metric.label)} {'at least' if is_floor else 'at most'} {metric.text(bound)}")
    return want + (f", with {_listed(limits)}" if limits else "")


def best_design(run: RunFolder) -> str:
    """Outcome of the best design, in words."""
    best = run.best
    if mixed(run):
        return _listed([f"{run.metric(e.goal).text(e.value)} ({e.workload})" for e in mixed(run)])
    names = [run.goal, *(name for name in run.words.headline if name != run.goal), "usd_per_million_tokens"]
    wanted = run.certificate.goal if run.certificate else ""
    parts = [
        f"{variable(n)} {hardware_text(run, n, best[PLAN_PREFIX + n])}" for n in hardware_names(run) if n == wanted
    ]
    for name in dict.fromkeys(names):
        if name in best and best[name] == best[name]:
            metric = run.metric(name)
            words = (inside(metric.label), metric.text(best[name]))
            parts.append(" ".join(reversed(words) if metric.unit == "count" else words))
    return _listed(parts)


def design(run: RunFolder) -> str:
    """The best design in one line: plan, then hardware; of a mix, the hardware."""
    best = run.best
    parts = [] if mixed(run) else [text for text in (degrees(best), choices(best, run.words)) if text]
    return " · ".join([*parts, *(f"{label} {value}" for label, value in hardware(run, best))])


def binds(design: Mapping[str, Any], words: FamilyVocabulary = OTHERS) -> tuple[str, ...]:
    """Name what holds a design back: used-up limits and memories, and the largest parts of its time."""
    text = design.get("active_constraints")
    if not isinstance(text, str) or not text.strip():
        return ()
    return tuple(_named(part, words) for part in text.strip().split("; "))


def _named(part: str, words: FamilyVocabulary) -> str:
    """`capex_usd 98.4%` is `capex 98.4%`, `tp 15% of time` is `tensor-parallel comm. 15% of time`."""
    name, _, rest = part.partition(" ")
    labels = {key: entry[0] for key, entry in PARTS.items()} | TIERS
    labels |= {key: inside(entry.label) for key, entry in METRICS.items() if not key.startswith("usage.")}
    labels |= dict(words.parts) | {key: inside(label) for key, (label, _) in words.metrics.items()}
    return f"{labels.get(name) or variable(name.replace('.', ' '))} {rest}".strip()


def claim(run: RunFolder) -> str:
    """Sentence on what the search did and how much that proves."""
    counts = run.summary.get("counts") or {}
    done = [f"{value:,.0f} {str(name).replace('_', ' ')}" for name, value in counts.items() if _is_count(value)]
    stored = str(run.summary.get("claim") or "").rstrip(".")
    methods = run.designs["method"].dropna().unique().tolist() if "method" in run.designs else []
    how = " and ".join(
        {"grid": "an exhaustive grid", "gradient": "gradient descent"}.get(str(name), str(name))
        for name in sorted(methods, key=lambda name: name != "grid")
    )
    text = stored or f"Heuristic solution by {how or 'the search'}, no certificate"
    space = str(run.summary.get("space") or "")
    text += f"; looked at: {space}" if space else ""
    seconds = _total(run.summary.get("seconds"))
    if done:
        took = f"; {number(seconds, 's')}" if seconds else ""
        text += f" ({', '.join(done)}{took})"
    return text[:1].upper() + text[1:] + "."


def certainty(run: RunFolder) -> str:
    """Sentence of `claim`, and what the best design may lose to the others under the model's errors."""
    regret = run.summary.get("regret") or {}
    more = f" {regret['text']}" if isinstance(regret, dict) and isinstance(regret.get("text"), str) else ""
    return claim(run) + more


def title(run: RunFolder) -> str:
    """The page's title."""
    name = run.summary.get("experiment") or run.setting("name") or run.path.resolve().name
    return str(name if isinstance(name, str) else run.path.resolve().name)


def _total(seconds: Any) -> float:
    if isinstance(seconds, dict):
        return float(seconds.get("total", sum(value for value in seconds.values() if _is_count(value))))
    return float(seconds) if _is_count(seconds) else 0.0


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def inside(label: str) -> str:
    """A label in the middle of a sentence: lower case unless an abbreviation leads."""
    return label if label[:2].isupper() else label[:1].lower() + label[1:]


def _listed(parts: list[str]) -> str:
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)


KEY_FIGURES = ("joules_per_token", "usd_per_million_tokens", "capex_usd", "provisioned_power_w")


def key_figures(run: RunFolder) -> list[tuple[str, str, str]]:
    """(label, value, 90 % interval where it is known) of what a reader wants first, of the best design."""
    best = dict(run.best)
    if run.device_count and "tokens_per_s" in best:
        for end in ("", "_low", "_high"):
            if f"tokens_per_s{end}" in best:
                best[f"tokens_per_s_per_device{end}"] = best[f"tokens_per_s{end}"] / run.device_count
    first = [f"{name}_per_device" if run.is_serving and name == "tokens_per_s" else name for name in run.words.headline]
    metrics = [(name, run.metric(name)) for name in (*first, *KEY_FIGURES) if name in best]
    return [(entry.label, entry.text(best[name]), interval(entry, best, name)) for name, entry in metrics]


def interval(metric: Metric, design: Mapping[str, Any], name: str) -> str:
    """`2.9 s to 14.9 s`; empty where the ends are not known."""
    return between_text(design.get(f"{name}_low"), design.get(f"{name}_high"), metric.text)
