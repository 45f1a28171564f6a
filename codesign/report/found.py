"""Headlines of the pictures of a run: a sentence above each on what it shows."""

from matplotlib.figure import Figure

from ..core.units import percent
from . import series
from .findings import headline
from .labels import MEMORY_CLASSES, PARTS, TIERS, component, number, signed
from .proof import certificate, closing, goal
from .run_folder import MissingPart, RunFolder

HEAD_IN = 0.42  # height that a headline adds
MEET = 1e-6  # relative gap below which a design is its bound
SHOWN, LITTLE = 0.005, 0.0005  # shares of the time, and of the cost, below which a number would read 0
FULL = 0.995  # share of a memory from which it counts as full


def found(figure: Figure, name: str, run: RunFolder) -> Figure:
    """The figure with its finding above it; as it is where there is none.

    Args:
        figure: drawn.
        name: of the function that drew it.
        run: that it shows.
    """
    say = SENTENCES.get(name)
    try:
        sentence = say(run) if say else ""
    except MissingPart:
        sentence = ""
    if sentence:
        figure.set_figheight(figure.get_figheight() + HEAD_IN)
        headline(figure, sentence)
    return figure


def _time(run: RunFolder) -> str:
    table = series.time_breakdown(run)
    best = table.iloc[0] / table.iloc[0].sum()
    known = run.labels(PARTS, run.words.parts)
    first, *rest = best.sort_values(ascending=False, kind="stable").head(3).items()

    def words(name: object) -> str:
        return known.get(str(name), (str(name).replace("_", " "),))[0].replace("comm.", "communication")

    others = " and ".join(f"{share:.0%} {words(name)}" for name, share in rest if share >= SHOWN)
    told = f"{first[1]:.0%} of the best {run.words.step} is {words(first[0])}" + (f", {others}" if others else "")
    if len(table) < 2:
        return told
    more = 100 * float(table.iloc[1].sum() / table.iloc[0].sum() - 1)
    share = signed(abs(more), 1).removeprefix("+")
    longer = f"{share} % longer" if more > 0 else f"{share} % less time"
    return f"{told}; the next design takes {'as long' if share == '0' else longer}"


def _cost(run: RunFolder) -> str:
    table = series.time_against_cost(run)
    front = table[table["front"]].sort_values("time_s", kind="stable")
    if front.empty:
        return "No design keeps all limits"
    kept = int(table["feasible"].sum())
    fast, cheap = front.iloc[0], front.iloc[-1]
    if len(front) == 1:
        told = f"The fastest of {kept:,} feasible designs is the cheapest too" if kept > 1 else "One design is kept"
        return f"{told}: {number(fast['time_s'], 's')}, {number(fast['usd_per_million_tokens'], '$')} a million tokens"
    less = 1 - float(cheap["usd_per_million_tokens"] / fast["usd_per_million_tokens"])
    if less < LITTLE:
        return f"Of {kept:,} feasible designs {len(front)} are worth a choice, all within {less:.2%} of cost"
    times = float(cheap["time_s"] / fast["time_s"])
    slower = f"{times - 1:.1%} more time" if times < 2 else f"{times:.3g} times the time"
    return f"Of {kept:,} feasible designs {len(front)} are worth a choice: {slower} saves {less:.1%} of cost"


def _roofline(run: RunFolder) -> str:
    ops = series.roofline(run)
    ridge = ops["peak_flops_per_s"] / ops["bandwidth_bytes_per_s"]
    bound = float(ops["share"][ops["intensity"] < ridge].sum())
    heavy = ops.iloc[0]
    reached = float(heavy["achieved_flops_per_s"] / heavy["peak_flops_per_s"])
    return (
        f"Memory bandwidth limits {bound:.0%} of the time of all operations; the heaviest, {heavy['name']}, takes "
        f"{float(heavy['share']):.0%} and reaches {reached:.0%} of the peak"
    )


def _memory(run: RunFolder) -> str:
    parts = []
    for tier, (table, capacity) in series.memory_by_tier(run).items():
        used, best = float(table.iloc[0].sum()), table.iloc[0]
        if used <= 0:
            continue
        share = used / float(capacity.iloc[0]) if capacity.iloc[0] == capacity.iloc[0] else float("nan")
        classes = run.labels(MEMORY_CLASSES, run.words.memory)
        most = str(best.idxmax())
        label = classes.get(most, (most.replace("_", " "),))[0]
        full = "is full" if share > FULL else f"is {share:.0%} full" if share == share else "is in use"
        parts.append(f"{TIERS.get(tier, tier)} {full}, {float(best.max()) / used:.0%} of it {label}")
    return f"In the best design {'; '.join(parts)}" if parts else ""


def _money(run: RunFolder) -> str:
    capex, power = series.parts(run, "capex."), series.parts(run, "power.")
    parts = [f"{component(str(one.index[0]))} {one.iloc[0] / one.sum():.0%}" for one in (capex, power)]
    whole = number(float(capex.sum()), "$"), number(float(power.sum()), "W")
    return f"Of {whole[0]} {parts[0]}; of {whole[1]} {parts[1]}: no other part takes as much"


def _elasticities(run: RunFolder) -> str:
    table = series.elasticities(run)
    first = table.iloc[0]
    guessed = int(table["kind"].isin(["assumed", "unstated"]).sum())
    name = run.metric(series.elasticity_metric(run)).label
    return (
        f"{name}: 1 % more {first['path'].removeprefix('cluster.')} changes it by {signed(first['elasticity'])} %, "
        f"more than any other constant; of the {len(table)} that matter most {guessed or 'none'} "
        f"{'is' if guessed < 2 else 'are'} assumed"
    )


def _closing(run: RunFolder) -> str:
    _, best, bound = closing(run)[-1]
    if best is None or bound is None or not bound:
        return ""
    final = certificate(run).gap  # what was polished after the last step of the history counts
    gap = abs(best / bound - 1) if final is None else final
    told = "the two meet" if gap < MEET else f"{percent(gap)} lie between them"
    ways = ("falls", "rises") if certificate(run).sense == "minimise" else ("rises", "falls")
    return f"{goal(run).label}: the best design {ways[0]}, the bound on every design {ways[1]}, until {told}"


SENTENCES = {
    "time_breakdown": _time, "time_against_cost": _cost, "roofline": _roofline, "memory_by_tier": _memory,
    "capex_and_power": _money, "elasticities": _elasticities, "convergence": _closing,
}  # fmt: skip
