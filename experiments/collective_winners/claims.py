"""Which collective wins where: rings and sums on electrical switches, circuits on a photonic rack, in time and joules.

Nobody has published this, so there is no paper column: every row is what the model says. Break-even points come from
gradients: times are linear in the reconfiguration time and in the latency of a trip, so that Newton's step is exact.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from codesign import replace, scenario_from_config
from codesign.evidence.reproduction import Claim
from codesign.model.networks.collectives import NetworkLevel
from codesign.model.networks.fabrics import Group
from codesign.model.workloads import CommOp
from codesign.report.findings import headline, panels, plain_ticks
from codesign.staging import at_many

NAME = "collective_winners"
CANDIDATES = {  # name: (fabric, collectives, colour)
    "ring": ("scin", "scin_ring", "#999999"),
    "NVLS": ("scin", "nvls", "#009e73"),
    "SCIN": ("scin", "scin", "#0072b2"),
    "SCIN+INQ": ("scin", "scin_inq", "#56b4e9"),
    "LUMORPH-2": ("lightpath", "lumorph_2", "#f0e442"),
    "LUMORPH-4": ("lightpath", "lumorph", "#e69f00"),
    "SiPAC-4": ("lightpath", "sipac", "#d55e00"),
}
NAMES = tuple(CANDIDATES)
ELECTRICAL = ("ring", "NVLS", "SCIN", "SCIN+INQ")
FIELDS = {  # who is compared
    "all": NAMES,
    "exact sums": tuple(name for name in NAMES if name != "SCIN+INQ"),
    "without SCIN": tuple(name for name in NAMES if name not in ("SCIN", "SCIN+INQ")),
    "ring and LUMORPH": ("ring", "LUMORPH-2", "LUMORPH-4"),
}
MAPS = (  # title, least of what, of whom, time to set a circuit
    ("time, all", "seconds", "all", 3.7e-6),
    ("time, no sums in the switch", "seconds", "without SCIN", 3.7e-6),
    ("energy, all", "joules", "all", 3.7e-6),
    ("ring or circuits, set in 0.1 us", "seconds", "ring and LUMORPH", 0.1e-6),
    ("... in 3.7 us, as published", "seconds", "ring and LUMORPH", 3.7e-6),
    ("... in 25 us", "seconds", "ring and LUMORPH", 25e-6),
)
LEAST_NAMED = 0.03  # share of a map in which a name has room
NARROW = 0.34  # share of the width of a map below which a name stands upright
DELAYS = (0.1e-6, 1e-6, 3.7e-6, 25e-6)
SIZES = np.logspace(3, 9.5, 53)
MEMBERS = np.array([2.0, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256])
JOBS = {  # on H200; everything in one domain
    "Llama-3.1-405B training": (
        "model=llama31_405b", "workload=training", "plan.tp=8", "plan.pp=8", "plan.sequence_parallel=0", "plan.zero=1",
        "plan.micro_batch=1", "cluster.device_count=256",
    ),
    "DeepSeek-V3 training": (
        "model=deepseek_v3", "workload=training", "plan.tp=4", "plan.pp=8", "plan.ep=8", "plan.sequence_parallel=0",
        "plan.zero=1", "plan.micro_batch=1", "cluster.device_count=256",
    ),
    "Llama-3.1-405B decode": (
        "model=llama31_405b", "workload=static_batch", "plan=serving_node", "plan.tp=16", "plan.micro_batch=64",
        "cluster.device_count=16",
    ),
    "DeepSeek-V3 decode": (
        "model=deepseek_v3", "workload=static_batch", "precision=bf16", "plan=serving_node", "plan.tp=8", "plan.ep=8",
        "plan.micro_batch=64", "cluster.device_count=64",
    ),
}  # fmt: skip


class Point(NamedTuple):
    """Of one member: seconds, joules with the fabric's standing power for that time, joules of the bytes alone."""

    seconds: jax.Array
    joules: jax.Array
    byte_joules: jax.Array


@functools.cache
def level(name: str) -> NetworkLevel:
    """A candidate's scale-up network, as wide as the question asks."""
    fabric, collective, _ = CANDIDATES[name]
    made = scenario_from_config(f"fabric={fabric}", f"collective={collective}").cluster.network["scale_up"]
    return replace(made, {"fabric.endpoints": MEMBERS.max()})


def priced(name: str, operation: str, nbytes: object, members: object, **changes: object) -> Point:
    """An operation by a candidate; `changes` are numbers of its fabric."""
    network = level(name)
    if "latency_s" in changes or name not in ELECTRICAL:  # a switch has no reconfiguration time
        network = replace(network, {f"fabric.{field}": value for field, value in changes.items()})
    group = Group(jnp.asarray(members, dtype=float))
    cost = network.collectives.algorithm(operation).cost(jnp.asarray(nbytes), group, network.fabric.link(group))
    return Point(cost.time_s, cost.energy_j + cost.time_s * network.fabric.static_power_w(), cost.energy_j)


@functools.cache
def _traced(name: str, operation: str) -> Callable[..., Any]:
    """`priced` of many sizes and members, and times to reconfigure where a candidate does: traced once."""

    def one(nbytes: jax.Array, members: jax.Array, delay: jax.Array) -> Point:
        return priced(name, operation, nbytes, members, reconfiguration_s=delay)

    def as_it_is(nbytes: jax.Array, members: jax.Array) -> Point:
        return priced(name, operation, nbytes, members)

    level(name)  # built outside of the trace
    return at_many(as_it_is, (0, 0)) if name in ELECTRICAL else at_many(one, (0, 0, 0))


def priced_at(name: str, operation: str, nbytes: np.ndarray, members: np.ndarray, delay: float | None = None) -> Point:
    """Points of a candidate; without a `delay`, that of its fabric."""
    if name in ELECTRICAL:
        return _traced(name, operation)(nbytes, members)
    delay = float(level(name).fabric.reconfiguration_s) if delay is None else delay
    return _traced(name, operation)(nbytes, members, np.full(np.shape(nbytes), delay))


@functools.cache
def grid(delay: float) -> dict[str, Point]:
    """All-reduces of all candidates, [members, sizes]."""
    sizes, members = np.meshgrid(SIZES, MEMBERS)
    found = {name: priced_at(name, "all_reduce", sizes.ravel(), members.ravel(), delay) for name in NAMES}
    return {name: Point(*(np.reshape(part, sizes.shape) for part in point)) for name, point in found.items()}


def winners(delay: float, quantity: str, field: str) -> np.ndarray:
    """Index into NAMES of the least, [members, sizes]."""
    names = FIELDS[field]
    values = np.stack([np.asarray(getattr(grid(delay)[name], quantity)) for name in names])
    return np.array([NAMES.index(name) for name in names])[values.argmin(axis=0)]


@functools.cache
def _with_slopes(name: str, field: str) -> Callable[..., Any]:
    """Seconds of an all-reduce, and their slope in one number of the fabric, at many points: traced once."""

    def seconds(value: jax.Array, nbytes: jax.Array, members: jax.Array) -> jax.Array:
        return priced(name, "all_reduce", nbytes, members, **{field: value}).seconds

    level(name)  # built outside of the trace
    return at_many(jax.value_and_grad(seconds), (0, 0, 0))


def root(name: str, field: str, other: float, nbytes: float, members: float, start: float) -> float:
    """Number of a candidate's fabric up to which its all-reduce takes less than `other` seconds; below 0: never.

    Seconds are (piecewise) linear in it: Newton's steps from the gradient.
    """
    run, x = _with_slopes(name, field), start

    def behind() -> tuple[float, float]:
        value, slope = run(*(np.asarray([number]) for number in (x, nbytes, members)))
        return float(value[0]) - other, float(slope[0])

    for _ in range(3):
        value, slope = behind()
        x = x - value / slope
    np.testing.assert_allclose(behind()[0], 0.0, atol=1e-9)
    return x


@functools.cache
def seconds_of(name: str, nbytes: float, members: float) -> float:
    """Seconds of a candidate's all-reduce with its fabric as it is."""
    return float(priced_at(name, "all_reduce", np.asarray([nbytes]), np.asarray([members])).seconds[0])


def longest_delay(name: str, rival: str, nbytes: float, members: float) -> float:
    """Reconfiguration time up to which circuits beat a rival; negative where they never do."""
    return root(name, "reconfiguration_s", seconds_of(rival, nbytes, members), nbytes, members, 3.7e-6)


def longest_trip(name: str, rival: str, nbytes: float, members: float) -> float:
    """Trip through the switch up to which sums in it beat a rival; negative where they never do."""
    return root(name, "latency_s", seconds_of(rival, nbytes, members), nbytes, members, 0.5e-6)


@functools.cache
def communication(job: str) -> pd.DataFrame:
    """What a job's busiest device communicates: a training step with all its micro-batches, or one decode step."""
    made = scenario_from_config(
        "accelerator=h200", "framework=none", "fabric=lightpath", "collective=lumorph", *JOBS[job]
    )
    layout, rows = made.layout, []
    repeats = {"decode": 1.0} if "decode" in job else made.workload.repeats(layout)
    for op in made.workload.lower(layout):
        if not isinstance(op, CommOp) or op.phase == "prefill":
            continue
        size = float(layout.group(op.axis).size)
        row = {"name": op.name, "operation": op.operation, "members": size, "bytes": float(op.nbytes)}
        rows.append(row | {"count": float(op.count * repeats[op.phase])})
    table = pd.DataFrame(rows)
    return table[(table["members"] > 1) & (table["bytes"] > 0) & (table["count"] > 0)].reset_index(drop=True)


@functools.cache
def jobs() -> pd.DataFrame:
    """Seconds and joules that each candidate communicates, nothing hidden."""
    rows = []
    for job in JOBS:
        table = communication(job)
        for name in NAMES:
            total = np.zeros(len(Point._fields))
            for operation, part in table.groupby("operation"):
                point = priced_at(name, str(operation), part["bytes"].to_numpy(), part["members"].to_numpy())
                count = part["count"].to_numpy()
                total += [float(np.sum(np.asarray(values) * count)) for values in point]
            rows.append({"job": job, "collective": name} | dict(zip(Point._fields, total, strict=True)))
    return pd.DataFrame(rows)


def typical(job: str) -> tuple[float, float]:
    """Bytes and members of the all-reduce on which a job spends most."""
    table = communication(job)
    table = table[table["operation"] == "all_reduce"].assign(moved=lambda part: part["bytes"] * part["count"])
    largest = table.sort_values("moved").to_dict(orient="records")[-1]
    return float(largest["bytes"]), float(largest["members"])


def claims() -> list[Claim]:
    """Who wins which share of the map, each job, and the break-even points."""
    result = []

    def tell(text: str, value: float) -> None:
        result.append(Claim(NAME, text, None, value, None, "model"))

    for delay in DELAYS:
        for quantity, field in [(q, "all") for q in Point._fields] + [("seconds", f) for f in list(FIELDS)[1:]]:
            found = winners(delay, quantity, field)
            for index in np.unique(found):
                share = float(np.mean(found == index))
                tell(f"map, {delay * 1e6:g} us, {quantity}, {field}: share won by {NAMES[index]}", share)
    table = jobs()
    for job, part in table.groupby("job", sort=False):
        for quantity in Point._fields:
            best = part.sort_values(quantity).to_dict(orient="records")[0]
            tell(f"{job}, communication: least {quantity}, by {best['collective']}", float(best[quantity]))
    for job in JOBS:
        nbytes, members = typical(job)
        where = f"{job}, all-reduce of {nbytes / 2**20:.4g} MiB, {members:.0f} members"
        for rival in ("ring", "NVLS", "SCIN"):
            value = longest_delay("LUMORPH-4", rival, nbytes, members) * 1e6
            tell(f"{where}: LUMORPH-4 beats {rival} up to a reconfiguration of, us", value)
        for rival in ("LUMORPH-4", "SiPAC-4"):
            tell(f"{where}: SCIN beats {rival} up to a trip of, us", longest_trip("SCIN", rival, nbytes, members) * 1e6)
    return result


def tables() -> dict[str, pd.DataFrame]:
    """The jobs, and break-even points over sizes and members."""
    rows = []
    for members in (8.0, 64.0, 256.0):
        for nbytes in (4096.0, 2.0**16, 2.0**20, 2.0**24, 2.0**28):
            row = {"members": int(members), "bytes": int(nbytes)}
            for rival in ("ring", "NVLS", "SCIN"):
                row[f"LUMORPH-4 beats {rival}: delay us"] = longest_delay("LUMORPH-4", rival, nbytes, members) * 1e6
            for rival in ("LUMORPH-4", "SiPAC-4"):
                row[f"SCIN beats {rival}: trip us"] = longest_trip("SCIN", rival, nbytes, members) * 1e6
            rows.append(row)
    return {"Communication of the jobs": jobs(), "Break-even points": pd.DataFrame(rows)}


def figures() -> dict[str, Figure]:
    """Maps of who needs least time and energy; the jobs."""
    figure, rows = panels(5.4, 2, 3, sharex=True, sharey=True)
    colours = ListedColormap([CANDIDATES[name][2] for name in NAMES])
    for axes, (title, quantity, field, delay) in zip([axes for row in rows for axes in row], MAPS, strict=True):
        result = winners(delay, quantity, field)
        axes.pcolormesh(SIZES, MEMBERS, result, cmap=colours, vmin=-0.5, vmax=len(NAMES) - 0.5, shading="nearest",
                        rasterized=True)  # fmt: skip
        axes.set(xscale="log", yscale="log")
        axes.set_title(title)
        axes.grid(visible=False)
        plain_ticks(axes, "x", (1e4, 1e6, 1e8), ("10 kB", "1 MB", "100 MB"))
        plain_ticks(axes, "y", (2, 4, 8, 16, 32, 64, 128, 256))
        for index in np.unique(result):
            _name_region(axes, result == index, NAMES[index])
    for axes in rows[-1]:
        axes.set_xlabel("message")
    for row in rows:
        row[0].set_ylabel("members")
    headline(figure, "Sums in the switch are fastest for nearly every message, circuits need the least energy; against "
             "the ring alone circuits win small messages, the fewer the longer they take to set")  # fmt: skip
    return {"Fastest and thriftiest all-reduce": figure, "Communication of the jobs": _jobs_figure()}


def _name_region(axes: Axes, region: np.ndarray, name: str) -> None:
    """The name of a collective in the widest of the rows in which it wins, if there is room."""
    widths = region.sum(axis=1)
    if region.mean() < LEAST_NAMED:
        return
    member = int(np.median(np.flatnonzero(widths >= 0.75 * widths.max())))
    place = float(np.exp(np.log(SIZES[region[member]]).mean()))
    dark = name in ("ring", "SCIN", "SiPAC-4", "NVLS")
    upright = widths[member] < NARROW * len(SIZES)
    axes.text(place, MEMBERS[member], name, ha="center", va="center", fontsize=7.5, rotation=90 * upright,
              color="white" if dark else "black")  # fmt: skip


def _jobs_figure() -> Figure:
    figure, rows = panels(4.7, 2, len(JOBS), sharey=True)
    table, ratios = jobs(), []
    for at, (job, part) in enumerate(table.groupby("job", sort=False)):
        part = part.set_index("collective").loc[list(NAMES)]
        ratios.append(float(part["seconds"]["ring"] / part["seconds"].min()))
        for axes, name, unit in ((rows[0][at], "seconds", "s"), (rows[1][at], "joules", "J")):
            values = part[name].to_numpy()
            axes.barh(range(len(NAMES)), values, color=[CANDIDATES[one][2] for one in NAMES], height=0.72)
            for index, value in enumerate(values):
                least = value == values.min()
                told = f" {value:.2g} {unit}" if value >= 1 else f" {1e3 * value:.2g} m{unit}"
                weight = "bold" if least else "normal"
                axes.text(value, index, told, va="center", fontsize=7.5, fontweight=weight)
            axes.set_xlim(0, 1.45 * values.max())
            axes.set_xticks([])
            axes.set_yticks(range(len(NAMES)), NAMES)
            axes.grid(visible=False)
            axes.tick_params(axis="y", length=0)
        rows[0][at].set_title(f"{str(job).replace(' ', chr(10), 1)}\ntime a step", fontsize=8)
        rows[1][at].set_title("energy a device and step", fontsize=8)
    rows[0][0].invert_yaxis()
    rows[1][0].invert_yaxis()
    headline(figure, f"Quantised sums in the switch communicate {min(ratios):.1f} to {max(ratios):.1f} times as fast "
             "as the ring in all four jobs; circuits need the least energy")  # fmt: skip
    return figure
