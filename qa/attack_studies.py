"""Studies that nobody chose, for `attack.py`: random hardware, boxes and plans over the structures of `conf/`.

A family has one scenario and one space; its members ask different things of it. What is least anywhere is looked up
first (`survey`), so that limits stand where they nearly cannot hold and cliffs beside an optimum. Every number comes
from (seed, family, member).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from codesign import (
    ConfigError,
    Continuous,
    DesignSpace,
    Metrics,
    Objective,
    Problem,
    Scenario,
    evaluate,
    get_path,
    replace,
    study_from_config,
)
from codesign.core import walk
from codesign.jaxprs import interpreted
from codesign.search.branch_and_bound import rows_of
from codesign.staging import row_program

A, NET = "cluster.accelerator", "cluster.network"
SILICON = [
    *(f"{A}.peak_flops_per_s.{name}" for name in ("fp16", "vector")),
    f"{A}.tdp_w",
    f"{A}.price_usd",
    f"{A}.idle_w",
]
USUAL = {
    "compute": (f"{A}.peak_flops_per_s.bf16", SILICON),
    "hbm_capacity": (f"{A}.hbm.capacity_bytes", []),
    "hbm_bandwidth": (f"{A}.hbm.bandwidth_bytes_per_s", []),
    "scale_up": (f"{NET}.scale_up.fabric.bandwidth_bytes_per_s", []),
    "scale_out": (f"{NET}.scale_out.fabric.bandwidth_bytes_per_s", []),
    "ddr": ("cluster.host.memory.capacity_bytes", []),
    "price": (f"{A}.price_usd", []),
}
CHIP = {
    "engines": (f"{A}.die.engines_mm2", []),
    "clock": (f"{A}.die.clock_hz", []),
    "hbm": (f"{A}.hbm.capacity_bytes", [f"{A}.hbm.bandwidth_bytes_per_s"]),
} | {name: USUAL[name] for name in ("scale_up", "scale_out")}
OPTICS = {
    "line_rate": (f"{NET}.scale_up.fabric.port.bits_per_s", []),
    "fibers": (f"{NET}.scale_up.fabric.server_fibers", []),
    "hbm_capacity": USUAL["hbm_capacity"],
    "scale_out": USUAL["scale_out"],
}
TIERED = {
    "hbm_bandwidth": (f"{A}.hbm.tiers.hbm.bandwidth_bytes_per_s", []),
    "cxl_bandwidth": (f"{A}.hbm.tiers.cxl.bandwidth_bytes_per_s", []),
    "cxl_price": (f"{A}.hbm.tiers.cxl.usd_per_byte", []),  # not its capacity: that of all tiers is a sum below a line
    "scale_up": USUAL["scale_up"],
}
POOLED = {
    "port": (f"{A}.hbm.port.beta_s_per_byte", []),
    "pool": (f"{A}.hbm.pool.capacity_bytes", [f"{A}.hbm.pool.bandwidth_bytes_per_s"]),
    "scale_up": USUAL["scale_up"],
}
PEER = {
    "compute": (f"{A}.peak_flops_per_s.fp16", [f"{A}.peak_flops_per_s.vector"]),
    "hbm_bandwidth": (f"{A}.hbm.bandwidth_bytes_per_s", []),
} | {name: USUAL[name] for name in ("scale_up", "scale_out", "price")}
SHARED = {"inner": (f"{NET}.scale_up.fabric.inner.bandwidth_bytes_per_s", []), "scale_out": USUAL["scale_out"]}
TRAINING = {
    "tp": [1, 2, 4, 8], "pp": [1, 2, 4, 8, 16], "virtual_stages": [1, 2, 3], "micro_batch": [1, 2, 4],
    "recompute": ["none", "selective", "full"], "zero": [0, 1, 3], "sequence_parallel": [0, 1],
    "offload_optimizer": [0, 0.5, 1], "offload_activations": [0, 0.5, 1],
}  # fmt: skip
WITHOUT_OFFLOAD = {name: values for name, values in TRAINING.items() if "offload" not in name}
SERVING = {"tp": [4, 8, 16], "pp": [1, 2, 4], "micro_batch": [1, 4, 8, 16, 32, 64, 128]}
TABLES = {
    "tp": [64, 128, 256], "row_shards": [1, 4, 8, 16], "column_shards": [1, 2], "micro_batch": [4096, 16384, 65536],
    "offload_weights": [0, 0.5, 0.9, 0.97],
}  # fmt: skip
JOB = ("experiment=train_gpt3_175b", "calibration=h100_sxm_roofline", "~space.hardware")
MODELS = {"llama2_70b": (256, 256), "gpt3_175b": (1024, 1536), "llama31_70b": (512, 256), "megatron_22b": (256, 256)}


class Base(NamedTuple):
    """A structure: overrides; hardware that its documentation calls log-convex (none: nothing is known); plan lists."""

    overrides: tuple[str, ...]
    usual: dict[str, tuple[str, list[str]]] = USUAL
    lists: dict[str, list[Any]] = TRAINING
    convex: bool = True


def _without(*names: str) -> dict[str, tuple[str, list[str]]]:
    return {name: how for name, how in USUAL.items() if name not in names}


BASES = {
    "dense": Base(JOB),
    "dense_fitted": Base(("experiment=train_gpt3_175b", "calibration=h100_sxm", "~space.hardware")),
    "dense_b200": Base(("experiment=train_gpt3_175b", "accelerator=b200", "~space.hardware")),
    "moe": Base((*JOB, "model=mixtral_8x7b", "cluster.device_count=256"), lists=TRAINING | {"ep": [1, 2, 4, 8]}),
    "serving": Base(("experiment=serve_llama31_405b_static", "calibration=h100_sxm_roofline"), lists=SERVING),
    "serving_fitted": Base(("experiment=serve_llama31_405b_static", "model=llama31_70b"), lists=SERVING),
    "serving_moe": Base(
        ("experiment=serve_llama31_405b_static", "calibration=h100_sxm_roofline", "model=mixtral_8x22b"),
        lists=SERVING | {"ep": [1, 2, 4, 8]},
    ),
    "serving_tiers": Base(
        (
            "experiment=serve_llama31_405b_static",
            "calibration=h100_sxm_roofline",
            "memory=hbm_cxl_ssd",
            "~space.hardware",
        ),
        TIERED,
        SERVING,
    ),
    "serving_pool": Base(
        ("experiment=serve_llama31_405b_pool", "calibration=h100_sxm_roofline", "cluster.device_count=64"),
        POOLED,
        SERVING,
    ),
    "chip": Base(("experiment=chip_175b",), CHIP),
    "photonic": Base(("experiment=photonic_rack",), OPTICS, TRAINING | {"tp": [8, 16, 32]}),
    "photonic_fastest": Base(
        ("experiment=lumorph_rack", "calibration=h100_sxm_roofline"), OPTICS, TRAINING | {"tp": [8, 16]}, False
    ),
    "folded_clos": Base((*JOB, "scale_out=infiniband_ndr_clos"), _without("hbm_capacity")),
    "contended": Base((*JOB, "scale_out=infiniband_ndr_contended"), _without("scale_out")),
    "shared_node": Base(("experiment=intranode_codesign",), SHARED),
    "graph": Base((*JOB, "fabric=hgx_h100_graph"), _without("scale_up")),
    "tables": Base(("experiment=serve_dlrm",), _without("hbm_capacity", "compute"), TABLES),
    "tables_training": Base(
        ("experiment=train_dlrm", "cluster.device_count=256"), _without("hbm_capacity"), TABLES, False
    ),
    "calculon": Base(("experiment=calculon",), PEER, WITHOUT_OFFLOAD),
}
GROWING = (
    "time_s",
    "energy_j",
    "joules_per_token",
    "capex_usd",
    "provisioned_power_w",
    "usd_per_million_tokens",
    "ttft_s",
    "tpot_s",
)
"""Metrics that a design wants small, sums and maxima of products by their formulas."""
MEMBERS = 6  # studies of a family
LOOKS, ROUNDS = 1024, 4  # designs of a survey, random and around the best, and how often the latter
FINE = 61  # levels of both offload shares where plans are to be bounded in groups


class Survey(NamedTuple):
    """What is least: metric -> (value, plan fields, coordinates); values: of feasible designs, metric -> array."""

    least: dict[str, tuple[float, np.ndarray, np.ndarray]]
    values: dict[str, np.ndarray]


class Family(NamedTuple):
    """Studies of one scenario and space; `convex`: its variables are all among those that are known to be."""

    number: int
    kind: str
    scenario: Scenario
    space: DesignSpace
    convex: bool
    survey: Survey


def kind_of(seed: int, number: int) -> str:
    """Structure of a family: all of them in random order, then again."""
    turn, place = divmod(number, len(BASES))
    return list(BASES)[np.random.default_rng([seed, turn, 7]).permutation(len(BASES))[place]]


def family(seed: int, number: int) -> Family:
    """A random family; what has no feasible design is drawn again."""
    rng, kind = np.random.default_rng([seed, number, 11]), kind_of(seed, number)
    for _ in range(12):
        base = BASES[kind]
        scenario = study_from_config(*_sized(base, rng)).scenario
        strange = not base.convex or rng.uniform() < 0.4
        space = DesignSpace(
            _plans(base, rng, grouped=rng.uniform() < 0.12), _hardware(base, scenario, rng, strange=strange)
        )
        scenario = _shaken(scenario, base, rng)
        try:
            result = survey(scenario, space, rng) if 4 <= _legal(space, scenario) <= 60_000 else None
        except (ConfigError, FloatingPointError):
            continue
        if result is not None:
            return Family(number, kind, scenario, space, not strange, result)
    raise RuntimeError(f"family {number} of seed {seed} ({kind}): no space with feasible designs in 12 draws")


def _sized(base: Base, rng: np.random.Generator) -> tuple[str, ...]:
    """Overrides with a random job where the structure leaves it open."""
    if base.overrides[:1] != JOB[:1] or any(text.startswith("model=") for text in base.overrides):
        return base.overrides
    model = list(MODELS)[rng.integers(len(MODELS))]
    devices, batch = MODELS[model]
    return (*base.overrides, f"model={model}", f"cluster.device_count={devices}", f"workload.global_batch={batch}")


def _legal(space: DesignSpace, scenario: Scenario) -> int:
    return len(next(iter(space.plans(scenario).values()))) if space.combinations < 60_000 else 0


def _plans(base: Base, rng: np.random.Generator, *, grouped: bool) -> dict[str, list[Any]]:
    """Random parts of the lists, at most a few hundred combinations; fine shares of what is offloaded for groups."""
    left, chosen = 400, {}
    for name in rng.permutation(list(base.lists)):
        values = base.lists[name]
        count = int(rng.integers(1, min(len(values), max(left, 1)) + 1))
        chosen[str(name)] = [values[i] for i in sorted(rng.choice(len(values), count, replace=False))]
        left //= count
    if grouped and "offload_activations" in base.lists:
        shares = [round(share, 4) for share in np.linspace(0, 1, FINE).tolist()]
        chosen = {name: values[:2] for name, values in chosen.items()}
        chosen |= {
            "offload_optimizer": shares,
            "offload_activations": shares,
            "micro_batch": [1, 2],
            "tp": [4, 8],
            "pp": [1, 2, 4],
        }
    return chosen


def _hardware(base: Base, scenario: Scenario, rng: np.random.Generator, *, strange: bool) -> dict[str, Continuous]:
    """Two to five variables, each in a random box; some of them leaves that nobody varies."""
    usual = [name for name in base.usual if float(get_path(scenario, base.usual[name][0])) > 0]
    count = int(rng.integers(2, 6))
    chosen = rng.permutation(usual)[: max(1, count - (int(rng.integers(1, 3)) if strange else 0))].tolist()
    known = {path: meta for path, meta, value in walk(scenario) if jnp.ndim(value) == 0 and float(value) > 0}
    result = {}
    for name in chosen:
        path, along = base.usual[name]
        moved = [leaf for leaf in along if leaf in known and leaf not in _taken(base, chosen, name)]
        result[name] = _box(path, moved, known[path], scenario, rng)
    groups: dict[str, list[str]] = {}
    for path in known:
        if not path.startswith(("plan.", "workload.global_batch")):
            groups.setdefault(".".join(path.split(".")[:4]), []).append(path)
    used = {leaf for variable in result.values() for leaf in (variable.path, *variable.tied)}
    while strange and len(result) < max(2, count):
        group = list(groups.values())[rng.integers(len(groups))]
        path = group[rng.integers(len(group))]
        box = _box(path, [], known[path], scenario, rng)
        if path not in used and box.low < box.high * 0.999:
            result[path.replace(".", "_").replace("/", "_")] = box
            used.add(path)
    return result


def _taken(base: Base, chosen: list[str], name: str) -> set[str]:
    return {base.usual[other][0] for other in chosen if other != name}


def _box(path: str, along: list[str], meta: dict[str, Any], scenario: Scenario, rng: np.random.Generator) -> Continuous:
    """A random range around the scenario's number, inside the legal one."""
    value = float(get_path(scenario, path))
    low, high = value * 10 ** rng.uniform(-0.6, 0.0), value * 10 ** rng.uniform(0.02, 0.6)
    return Continuous(path, max(low, float(meta["low"])), min(high, float(meta["high"])), tied=along)


def _shaken(scenario: Scenario, base: Base, rng: np.random.Generator) -> Scenario:
    """The scenario with some of its usual numbers changed by tens of per cent."""
    paths = [path for path, _ in base.usual.values() if rng.uniform() < 0.5]
    return replace(
        scenario, {path: float(get_path(scenario, path)) * float(np.exp(0.2 * rng.normal())) for path in paths}
    )


def survey(scenario: Scenario, space: DesignSpace, rng: np.random.Generator) -> Survey | None:
    """The least of every metric that varies, by random designs and others around the best; None if none fits."""
    problem = Problem(scenario, space, Objective("time_s"))
    known = evaluate(scenario).flat()
    names = [name for name in GROWING if name in known and float(known[name]) > 0]

    def rows(metrics: Metrics, values: dict[str, Any]) -> dict[str, Any]:
        return rows_of(problem)(metrics, values) | {f"~{name}": jnp.log(metrics.get(name)) for name in names}

    fields = tuple(space.plan)
    program = row_program(scenario, space, fields, rows, "goal")
    run = interpreted(jax.vmap(program.exact, in_axes=(None, 0, 0)))
    table = np.stack(list(space.plans(scenario).values()), axis=-1)
    plan, u = table[rng.integers(0, len(table), LOOKS)], rng.uniform(size=(LOOKS, len(space.names)))
    u[::2] = np.round(u[::2])
    seen: list[tuple[np.ndarray, ...]] = []
    for width in (*np.geomspace(0.3, 0.003, ROUNDS), 0.0):
        result, broken = (np.asarray(part) for part in run(scenario, jnp.asarray(plan), jnp.asarray(u)))
        named = dict(zip(program.names, result.T, strict=True))
        holds = np.all([named[n] <= 0 for n in program.names if n.startswith("usage.")] or [broken <= 0], axis=0)
        holds &= (broken <= 0) & np.isfinite(result).all(axis=1)
        seen.append((plan[holds], u[holds], np.exp([named[f"~{name}"][holds] for name in names]).T))
        plans, points, values = (np.concatenate(parts) for parts in zip(*seen, strict=True))
        if len(points) < 8:
            return None
        best = np.concatenate([np.argsort(values[:, k], kind="stable")[:8] for k in range(len(names))])
        chosen = rng.choice(best, LOOKS)
        plan = np.where(rng.uniform(size=(LOOKS, 1)) < 0.3, table[rng.integers(0, len(table), LOOKS)], plans[chosen])
        u = np.clip(points[chosen] + width * rng.normal(size=(LOOKS, points.shape[1])), 0.0, 1.0)
    moves = [k for k in range(len(names)) if np.ptp(np.log(values[:, k])) > 1e-6]
    least = {
        names[k]: (float(values[at, k]), plans[at], points[at]) for k in moves for at in [int(values[:, k].argmin())]
    }
    return Survey(least, {names[k]: values[:, k] for k in moves}) if least else None
