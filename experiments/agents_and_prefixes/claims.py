"""Worth of a terabyte for prefixes: replicas that agents need with none, with DDR in each host, with a shared pool."""

import dataclasses
from functools import cache

import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign.commands import prepare_jax
from codesign.commands.simulate import engine_of
from codesign.commands.simulate_forms import cached_tokens
from codesign.config import scenario_from_config
from codesign.evidence.reproduction import Claim
from codesign.model.workloads import prefix_reuse
from codesign.report.findings import BLUE, GREEN, GREY, ORANGE, beside, headline, panels
from codesign.search import numbers_of
from codesign.simulation.fleet import (
    FleetServed,
    LatencyLimits,
    RequestClass,
    conversations,
    keeps_slo,
    reuse_of,
    simulate_fleet,
    traffic_measures,
)
from codesign.simulation.serving import Engine, Requests, arrivals

NAME = "agents_and_prefixes"
DEVICES = 4  # of a replica
DESIGN = (
    "model=llama31_70b", "accelerator=h100_sxm", "workload=goodput", "cluster.device_count=64", f"plan.tp={DEVICES}",
    "kernel_correction=null", "workload.kernel_slowdown=1",  # without learned factors, and the slowdown fitted so
    "plan.micro_batch=128", "plan.token_budget=2048", "workload.input_tokens=1024", "workload.output_tokens=256",
)  # fmt: skip
POOL = ("memory=hbm_and_photonic_pool",)
CLASSES = (
    RequestClass("agent", 800, 150, share=1, prefix_tokens=8192, prefixes=50, turns=15, think_s=6),
    RequestClass("chat", 300, 250, share=2, prefix_tokens=1536, prefixes=20, turns=5, think_s=45),
)
BEGIN_PER_S, BEFORE_S, UNTIL_S, SEED = 1.0, 300.0, 840.0, 0
AGREED = LatencyLimits(4.0, 0.05, 0.95)
TERABYTES = (0.125, 0.25, 0.5, 1.0, 2.0)
MOST = 32  # replicas
PLACES = {"own": "DDR in each host", "shared": "one photonic pool", "turns": "DDR, requests by turns"}
TB = 1e12


@cache
def parts() -> dict[str, float]:
    """Bytes of a token, seconds to load one by PCIe and by a photonic port, dollars of replicas and of memories."""
    prepare_jax()
    scenario, pooled = scenario_from_config(*DESIGN), scenario_from_config(*DESIGN, *POOL)
    on_device = float(scenario.workload.kv_bytes_per_token(scenario.layout))
    pool = pooled.cluster.accelerator.hbm.tiers["pool"]
    return {
        "token_bytes": DEVICES * on_device,
        "pcie_s": on_device * float(scenario.cluster.host.link.beta_s_per_byte),
        "port_s": on_device * float(pool.port.beta_s_per_byte),
        "replica_usd": numbers_of(scenario)["capex_usd"] * DEVICES / 64,
        "ddr_usd": TB * float(scenario.cluster.host.memory.usd_per_byte),
        "pool_usd": TB * float(pool.tier.usd_per_byte),
        "port_usd": float(pool.usd_per_port),
    }


@cache
def engine() -> Engine:
    """Four H100 that serve Llama 3.1 70B, 128 slots."""
    prepare_jax()
    result, _ = engine_of(scenario_from_config(*DESIGN))
    return Engine(result.times, budget=result.budget, chunk=result.chunk, blocks=result.blocks, sequences=128)


@cache
def requests() -> Requests:
    """Turns that come within nine minutes, five after the first conversations have begun."""
    rng = np.random.default_rng(SEED)
    begins = arrivals(rng, BEGIN_PER_S, 1.0, int(BEGIN_PER_S * UNTIL_S))
    result = conversations(rng, begins, CLASSES, open_loop=True, answer_s=8.0, most_tokens=32_000)
    came = result.arrivals
    assert came is not None
    own = result.chosen(np.flatnonzero((came >= BEFORE_S) & (came < UNTIL_S)))
    assert own.arrivals is not None
    return dataclasses.replace(own, arrivals=own.arrivals - own.arrivals[0])


def setting(terabytes: float, kind: str, replicas: int) -> tuple[Engine, Requests, str, bool]:
    """Engine of a replica, requests, router, and whether replicas share one store of so much room in all."""
    known = parts()
    blocks = int(terabytes * TB / known["token_bytes"] / requests().hash_tokens)
    shared = kind == "shared"
    one = dataclasses.replace(
        engine(), store_blocks=blocks if shared else blocks // replicas,
        store_token_s=known["port_s" if shared else "pcie_s"],
    )  # fmt: skip
    router = {"own": "prefix_aware", "shared": "least_outstanding", "turns": "round_robin"}[kind]
    return one, requests(), router, shared


@cache
def served(terabytes: float, kind: str, replicas: int) -> FleetServed:
    """The requests on so many replicas with so much room for prefixes in all."""
    one, some, router, shared = setting(terabytes, kind, replicas)
    return simulate_fleet(one, some, router, replicas=replicas, shared_store=shared)


@cache
def keeps(terabytes: float, kind: str, replicas: int) -> bool:
    """True if enough of the requests keep the SLO there."""
    one, some, router, shared = setting(terabytes, kind, replicas)
    return keeps_slo(one, some, AGREED, router, replicas=replicas, shared_store=shared)


@cache
def fewest(terabytes: float, kind: str) -> int:
    """Replicas that keep the SLO, by halving."""
    low, high = 0, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(terabytes, kind, middle) else (middle, high)
    return high


def saved_usd(terabytes: float, kind: str) -> float:
    """Dollars of replicas that a terabyte makes needless, on average."""
    return parts()["replica_usd"] * (fewest(0.0, "own") - fewest(terabytes, kind)) / terabytes


def memory_usd(terabytes: float, kind: str) -> float:
    """Dollars of a terabyte, ports of all accelerators included."""
    known = parts()
    if kind != "shared":
        return known["ddr_usd"]
    return known["pool_usd"] + known["port_usd"] * DEVICES * fewest(terabytes, kind) / terabytes


@cache
def curve() -> prefix_reuse.HitCurve:
    """Hit rate by room of the requests' blocks."""
    return prefix_reuse.curve_of_reuse(reuse_of(requests()))


def under_way(found: FleetServed) -> float:
    """Blocks of prompts that are waited for or computed, which engines hold beside the room, on average."""
    blocks = np.diff(found.requests.hash_starts)
    return float((blocks * (found.first - found.came)).sum() / np.ptp(found.came))


def closed_hits(terabytes: float, more: float = 0.0) -> float:
    """Share of prompt tokens in one cache of so much, by Che's approximation, `more` blocks being under way."""
    result = requests()
    blocks = terabytes * TB / parts()["token_bytes"] / result.hash_tokens + more
    share = float(curve().hit(jnp.asarray(blocks)))
    return share * len(result.hashes) * result.hash_tokens / float(result.prompts.sum())


def closed_hits_of(kind: str, found: FleetServed, terabytes: float, replicas: int) -> float:
    """Share of prompt tokens in one pool, or in caches of each replica, with first tokens as simulated."""
    if kind == "shared":
        return closed_hits(terabytes, under_way(found))
    blocks = int(terabytes * TB / parts()["token_bytes"] / requests().hash_tokens) // replicas
    one = dataclasses.replace(engine(), store_blocks=blocks)
    ttft_s = float((found.first - found.came).mean())
    router = "prefix_aware" if kind == "own" else "round_robin"
    return cached_tokens(one, requests(), router, replicas, ttft_s).hit_rate


@cache
def table() -> pd.DataFrame:
    """A row for each room and place: replicas, hits, dollars."""
    rows = [{
        "terabytes": 0.0, "place": "none", "replicas": fewest(0.0, "own"), "hits": 0.0, "closed_hits": 0.0,
    }]  # fmt: skip
    for kind in PLACES:
        for room in TERABYTES if kind != "turns" else (1.0,):
            count = fewest(room, kind)
            one = served(room, kind, count)
            rows.append({
                "terabytes": room, "place": PLACES[kind], "replicas": count, "hits": one.hit_rate,
                "closed_hits": closed_hits_of(kind, one, room, count),
                "saved_usd_per_tb": saved_usd(room, kind), "memory_usd_per_tb": memory_usd(room, kind),
            })  # fmt: skip
    return pd.DataFrame(rows)


def claims() -> list[Claim]:
    """Replicas with and without room for prefixes, what a terabyte is worth, and hit rates in closed form."""
    rows = table().set_index(["place", "terabytes"])
    none, simulated = fewest(0.0, "own"), "derived: simulated, request by request"

    def ordering(text: str, holds: bool) -> Claim:
        return Claim(NAME, text, 1.0, float(holds), 0.0, simulated, error=float(not holds))

    gaps = [abs(row["closed_hits"] - row["hits"]) for (place, _), row in rows.iterrows() if place == PLACES["shared"]]
    own = [abs(row["closed_hits"] - row["hits"]) for (place, _), row in rows.iterrows() if place == PLACES["own"]]
    return [
        ordering("a terabyte of DDR over all hosts leaves less than a third of the replicas needed",
                 3 * fewest(1.0, "own") < none),
        ordering("it saves more than a hundred times its price", saved_usd(1.0, "own") > 100 * memory_usd(1.0, "own")),
        ordering("half a terabyte shared by all leaves fewer replicas needed than half of one over the hosts",
                 fewest(0.5, "shared") < fewest(0.5, "own")),
        ordering("with a terabyte a shared pool saves no replica that hosts do not",
                 fewest(1.0, "shared") >= fewest(1.0, "own") - 1),
        ordering("the second terabyte saves less than a tenth of what the first does",
                 fewest(1.0, "own") - fewest(2.0, "own") < 0.1 * (none - fewest(1.0, "own"))),
        ordering("by turns the same DDR leaves more than half again as many replicas needed",
                 fewest(1.0, "turns") > 1.5 * fewest(1.0, "own")),
        Claim(NAME, "hit rate of the shared pool, closed form against simulation, largest gap", 0.0, max(gaps), 0.06,
              "derived: Che's approximation beside the simulation", error=max(gaps)),
        Claim(NAME, "hit rate of hosts, closed form of every N-th conversation against simulation, largest gap", 0.0,
              max(own), 0.06, "derived: Che's approximation beside the simulation", error=max(own)),
        Claim(NAME, "replicas without room for prefixes", None, none, None, simulated),
        *(Claim(NAME, f"replicas with {room:g} TB, {PLACES[kind]}", None, fewest(room, kind), None, simulated)
          for kind in ("own", "shared") for room in TERABYTES),
        *(Claim(NAME, f"USD of replicas that a TB saves at {room:g} TB, {PLACES[kind]}", None, saved_usd(room, kind),
                None, simulated) for kind in ("own", "shared") for room in (0.25, 1.0)),
    ]  # fmt: skip


def tables() -> dict[str, pd.DataFrame]:
    """Replicas and dollars by room; what was measured of the requests."""
    measured = pd.DataFrame([traffic_measures(requests()) | {"bytes_per_token": parts()["token_bytes"]}]).T
    return {"Replicas by room for prefixes": table(), "Requests as measured": measured.rename_axis("of").reset_index()}


def figures() -> dict[str, Figure]:
    """Replicas and hit rates along the room."""
    figure, (row,) = panels(3.2, 1, 2)
    left, right = row
    result, none = table(), fewest(0.0, "own")
    for kind, colour in (("own", BLUE), ("shared", GREEN)):
        some = result[result["place"] == PLACES[kind]]
        left.plot(some["terabytes"], some["replicas"], "o-", color=colour, lw=1.4, ms=4)
        right.plot(some["terabytes"], 100 * some["hits"], "o", color=colour, ms=5)
        at, shift = (1, (6, 5)) if kind == "own" else (3, (0, -6))
        beside(left, PLACES[kind], some["terabytes"].iloc[at], some["replicas"].iloc[at], colour, shift)
        shift = (6, -5) if kind == "own" else (0, -16)
        beside(right, PLACES[kind], some["terabytes"].iloc[at], 100 * some["hits"].iloc[at], colour, shift)
    left.axhline(none, color=ORANGE, lw=1.2)
    beside(left, f"none: {none}", TERABYTES[-1], none, ORANGE, (-1, -4))
    rooms = np.geomspace(0.06, TERABYTES[-1], 40)
    right.plot(rooms, [100 * closed_hits(room) for room in rooms], color=GREY, lw=1.2)
    beside(right, "one cache, closed form", TERABYTES[-1], 60.0, GREY, (-1, 0.1))
    left.set(xlabel="TB for prefixes, all replicas", title="replicas that keep the SLO")
    right.set(xlabel="TB for prefixes, all replicas", title="prompt tokens from a cache, %")
    for axes in row:
        axes.set_ylim(0, None)
        axes.set_xlim(0, None)
    told = (
        f"A terabyte of DDR for prefixes takes the place of {none - fewest(1.0, 'own')} of {none} replicas:"
        f" ${saved_usd(1.0, 'own') / 1e6:.1f}M of machines for ${memory_usd(1.0, 'own') / 1e3:.1f}k of memory"
    )
    headline(figure, told)
    return {"What room for prefixes is worth": figure}
