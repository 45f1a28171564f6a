"""Hits from the room that a design leaves its prefix caches: replayed, by hand, slopes, and what a search proves."""

import dataclasses
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from slopes import values_and_slopes

from codesign import evaluate
from codesign.commands.cli import main
from codesign.commands.evaluate import prefix_worth
from codesign.config import scenario_from_config, study_from_config
from codesign.config.traced_requests import curves_of
from codesign.core.errors import ConfigError
from codesign.core.fields import as_leaf, replace
from codesign.model.metrics.cache_placement import hits_of
from codesign.model.workloads import PopularPrefixes, TracedPrefixes
from codesign.search.results import numbers_of
from codesign.simulation.fleet import RequestClass, conversations, simulate_fleet
from codesign.simulation.serving import Engine, Requests, RooflineSteps, arrivals
from codesign.simulation.serving.cache_blocks import PrefixStore

SLOW = pytest.mark.slow
STEPS = RooflineSteps(fixed_s=1e-4, weights_s=1e-4, token_s=1e-7, read_s=1e-12, pair_s=1e-14)
DESIGN = (
    "model=llama31_8b", "accelerator=h100_sxm", "calibration=h100_sxm_roofline", "workload=continuous",
    "framework=none", "cluster.device_count=4", "plan.tp=1", "plan.pp=1", "plan.micro_batch=32",
    "plan.token_budget=1024", "workload.input_tokens=4096", "workload.output_tokens=256",
)  # fmt: skip
POPULAR = ("workload.prefix_cache.prefix_tokens=3072", "workload.prefix_cache.count=2000")
HBM, HOST = "cluster.accelerator.hbm.capacity_bytes", "cluster.host.memory.capacity_bytes"
LINK = "cluster.host.link.beta_s_per_byte"
CLASSES = (
    RequestClass("chat", 300, 40, share=3, prefix_tokens=2048, prefixes=60, turns=4, think_s=30),
    RequestClass("agent", 900, 40, prefix_tokens=6144, prefixes=20, turns=10, think_s=4),
)


def leaf(value: float) -> jax.Array:
    return jnp.asarray(float(value))


def trace(seed: int, count: int) -> Requests:
    rng = np.random.default_rng(seed)
    return conversations(rng, arrivals(rng, 1.0, 1.0, count), CLASSES, open_loop=True, answer_s=1.0, most_tokens=20_000)


def table(asked: Requests, router: str) -> TracedPrefixes:
    return TracedPrefixes(curves_of(asked, router))


@pytest.mark.parametrize(("replicas", "count", "most"), [(4, 160, 0.02), pytest.param(5, 1500, 0.02, marks=SLOW)])
@pytest.mark.parametrize("router", ["round_robin", "session_sticky"])
def test_shares_are_those_of_a_fleet_that_is_replayed_within_two_points(router, replicas, count, most):
    """Each replica with a cache of its own; five is between numbers of caches that are tabulated."""
    asked = trace(0, count)
    reuse = table(asked, router)
    for blocks in (100, 400) if count < 1000 else (30, 100, 400, 2000):
        engine = Engine(STEPS, budget=10**9, chunk=8192, blocks=10**6, sequences=256, store_blocks=blocks)
        result = simulate_fleet(engine, asked, router, replicas=replicas)
        share = reuse.found(leaf(blocks * asked.hash_tokens), leaf(replicas), leaf(1), leaf(1))
        assert float(share) == pytest.approx(result.hit_rate, abs=most)


def test_what_is_computed_is_that_of_a_replay():
    """Variation and keys of prompts without their cached part, by a cache of the simulator."""
    asked = trace(1, 150)
    reuse, size = table(asked, "round_robin"), asked.hash_tokens
    for blocks in (60, 400):
        store, held = PrefixStore(blocks), np.zeros(len(asked))
        for request in range(len(asked)):
            own = asked.hashes_of(request)
            held[request] = min(store.leading(own) * size, int(asked.prompts[request]) - 1)
            store.put(own)
        computed = asked.prompts - held
        share = reuse.found(leaf(blocks * size), leaf(1), leaf(1), leaf(1))
        varies, keys = reuse.computed(share, leaf(1), leaf(1), leaf(1))
        assert float(share) == pytest.approx(held.sum() / asked.prompts.sum(), abs=0.02)
        assert float(varies) == pytest.approx(computed.std() / computed.mean(), rel=0.1)
        mean = (computed * (held + 0.5 * computed)).sum() / computed.sum() / asked.prompts.mean()
        assert float(keys) == pytest.approx(mean, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("zipf", [0.0, 0.8, 1.2])
def test_popular_prefixes_are_those_of_a_replay(zipf):
    """Four blocks of a beginning and two that nobody wants again, in caches of some sizes."""
    rng, count, prefixes = np.random.default_rng(2), 20_000, 300
    wanted = np.arange(1, prefixes + 1.0) ** -zipf
    drawn = rng.choice(prefixes, count, p=wanted / wanted.sum())
    reuse = PopularPrefixes(4.0, float(prefixes), zipf)
    for room in (60, 300, 1000, 2500):
        store, result = PrefixStore(room), 0
        for index, prefix in enumerate(drawn.tolist()):
            blocks = [4 * prefix + one for one in range(4)] + [10**6 + 2 * index, 10**6 + 2 * index + 1]
            result += store.leading(blocks)
            store.put(blocks)
        share = reuse.found(leaf(room), leaf(1), leaf(6), leaf(0))
        assert float(share) == pytest.approx(result / (6 * count), abs=0.01)


def test_limits_by_hand():
    alike = PopularPrefixes(4.0, 300.0, 0.0)
    none, all_ = (alike.found(leaf(room), leaf(1), leaf(8), leaf(0)) for room in (0, 1e9))
    assert (float(none), float(all_)) == (0, pytest.approx(0.5))
    fits = alike.found(leaf(600), leaf(1), leaf(4), leaf(0))  # nothing passes: the share that there is room for
    assert float(fits) == pytest.approx(0.5, abs=1e-3)
    own = dataclasses.replace(alike, affinity=leaf(1))
    assert float(own.found(leaf(600), leaf(2), leaf(4), leaf(0))) == pytest.approx(1.0, abs=2e-3)
    again = Requests(np.full(60, 1024), np.ones(60, int), np.arange(60.0), hashes=np.tile([0, 1], 60),
                     hash_starts=2 * np.arange(61))  # fmt: skip
    reuse = table(again, "round_robin")
    rooms = [float(reuse.found(leaf(room), leaf(1), leaf(1), leaf(1))) for room in (0, 1024, 1e9)]
    assert rooms == pytest.approx([0, 59 * 1023 / (60 * 1024), 59 * 1023 / (60 * 1024)], rel=1e-6)


@pytest.mark.slow
def test_room_is_what_a_reader_adds_up():
    """Bytes of the device less weights, activations and answers; the host's memory; over 131,072 B a token."""
    scenario = scenario_from_config(*DESIGN, *POPULAR)
    hits, numbers = hits_of(scenario), numbers_of(scenario)
    token = 131_072.0
    memory, host = scenario.cluster.accelerator.hbm, scenario.cluster.host.memory
    beside = sum(v for k, v in numbers.items() if k.startswith("memory_bytes.hbm/") and "kv_cache" not in k)
    answers = 32 * (0.5 * 256 + 0.5 * float(scenario.workload.block_tokens))
    assert hits.room_tokens["hbm"] == pytest.approx((float(memory.usable_bytes()) - beside) / token - answers, rel=1e-6)
    assert hits.room_tokens["host"] == pytest.approx(float(host.usable_bytes()) / token, rel=1e-6)
    assert numbers["prefix_hit_rate"] == pytest.approx(sum(hits.tiers.values()))
    assert numbers["prefix_fetch_s"] == pytest.approx(
        hits.tiers["host"] * 4096 * token * float(scenario.cluster.host.link.beta_s_per_byte)
    )


@pytest.mark.slow
def test_room_for_all_or_nothing_prices_as_a_share_that_is_known():
    """One beginning is always there; a beginning that hardly comes back is as none."""
    caches = ("workload.input_tokens=4000", "workload.prefix_cache.host_ratio=0")  # no whole number of chunks
    held = numbers_of(scenario_from_config(*DESIGN, caches[0], "workload.cached_ratio=0.768"))
    none = numbers_of(scenario_from_config(*DESIGN, caches[0]))
    one = numbers_of(scenario_from_config(*DESIGN, POPULAR[0], "workload.prefix_cache.count=1", *caches))
    rare = (POPULAR[0], "workload.prefix_cache.count=1000000000", "workload.prefix_cache.zipf=0")
    never = numbers_of(scenario_from_config(*DESIGN, *rare, *caches))
    for name in ("time_s", "ttft_s", "tpot_s", "requests_per_s", "usd_per_million_tokens"):
        assert one[name] == pytest.approx(held[name], rel=1e-3)
        assert never[name] == pytest.approx(none[name], rel=1e-3)


@pytest.mark.parametrize("reuse", [PopularPrefixes(4.0, 300.0, 0.8), "traced"])
def test_slopes_of_the_share_are_those_of_differences_and_of_the_fixed_point(reuse):
    reuse = table(trace(5, 60), "round_robin") if reuse == "traced" else reuse

    def share(room: jax.Array, caches: jax.Array) -> jax.Array:
        return reuse.found(room, caches, leaf(6), leaf(1))

    for room in (333.0, 1234.5):
        slope = float(jax.grad(share)(leaf(room), leaf(1.5)))
        low, high = (float(share(leaf(room * (1 + sign * 1e-5)), leaf(1.5))) for sign in (-1, 1))
        assert slope * room == pytest.approx((high - low) / 2e-5, rel=1e-4)
        assert slope > 0
    rooms = jnp.asarray([50.0, 500.0])
    plain = [float(share(room, leaf(2))) for room in rooms]
    assert np.asarray(jax.jit(jax.vmap(lambda room: share(room, leaf(2))))(rooms)) == pytest.approx(plain, rel=1e-9)


@pytest.mark.slow
def test_slopes_are_those_of_differences():
    """First tokens are left out: their slopes are those of lengths that are not rounded up to chunks."""
    scenario = scenario_from_config(*DESIGN, *POPULAR, "workload.prefix_cache.host_ratio=0.3")

    names = ("prefix_hit_rate", "time_s", "prefix_fetch_s")

    def at(values: dict[str, jax.Array]) -> list[jax.Array]:
        metrics = evaluate(replace(scenario, values))
        return [metrics.get(name) for name in names]

    own = {
        HBM: float(scenario.cluster.accelerator.hbm.capacity_bytes),
        HOST: float(scenario.cluster.host.memory.capacity_bytes),
        LINK: float(scenario.cluster.host.link.beta_s_per_byte),
    }
    steps = np.concatenate([np.zeros((1, 3)), 1e-4 * np.eye(3), -1e-4 * np.eye(3)])
    columns = {path: own[path] * (1 + steps[:, place]) for place, path in enumerate(own)}
    values, slopes = values_and_slopes(at, own, columns)  # the point, then each of the three up, then down
    for path, name in ((HBM, "prefix_hit_rate"), (HBM, "time_s"), (HOST, "time_s"), (LINK, "prefix_fetch_s")):
        place, which = [*own].index(path), names.index(name)
        slope = float(slopes[path][0, which])
        low, high = values[4 + place, which], values[1 + place, which]
        assert slope * own[path] == pytest.approx((high - low) / 2e-4, rel=1e-3)
        assert slope != 0


@pytest.mark.slow
def test_a_compiled_and_a_mapped_call_are_the_plain_one():
    scenario = scenario_from_config(*DESIGN, *POPULAR)
    sizes = jnp.asarray([70e9, 90e9])
    plain = [numbers_of(replace(scenario, {HBM: size})) for size in sizes]
    mapped = jax.jit(jax.vmap(lambda size: evaluate(replace(scenario, {HBM: size})).flat()))(sizes)
    for place, name in itertools.product(range(2), ("prefix_hit_rate", "time_s", "ttft_s")):
        assert float(mapped[name][place]) == pytest.approx(plain[place][name], rel=1e-9)


@pytest.mark.slow
def test_numbers_are_finite_over_the_legal_box():
    scenario = scenario_from_config(*DESIGN, *POPULAR)
    prefix = "workload.prefix_cache"
    for tokens, count, zipf, store, ratio in itertools.product((1, 1e7), (1, 1e9), (0, 3), (0, 1e18), (0, 1)):
        point = {f"{prefix}.reuse.prefix_tokens": tokens, f"{prefix}.reuse.count": count, f"{prefix}.reuse.zipf": zipf,
                 f"{prefix}.store_bytes": store, f"{prefix}.host_ratio": ratio}  # fmt: skip
        result = numbers_of(replace(scenario, {path: as_leaf(float(value)) for path, value in point.items()}))
        assert 0 <= result["prefix_hit_rate"] <= 1
        assert np.isfinite([result[name] for name in ("time_s", "ttft_s", "prefix_fetch_s", "energy_j")]).all()


def test_more_room_of_any_kind_finds_no_less():
    for more in ("workload.prefix_cache.store_bytes=50TB", f"{HOST}=2e12", f"{HBM}=120e9"):
        before = numbers_of(scenario_from_config(*DESIGN, *POPULAR))
        after = numbers_of(scenario_from_config(*DESIGN, *POPULAR, more))
        assert after["prefix_hit_rate"] > before["prefix_hit_rate"]
        assert after["requests_per_s"] >= before["requests_per_s"]


def test_a_slow_link_is_waited_for():
    slow, fast = (
        numbers_of(scenario_from_config(*DESIGN, *POPULAR, f"{HBM}=64e9", f"{LINK}={beta}")) for beta in (1e-9, 1e-11)
    )
    assert slow["prefix_hit_rate"] == fast["prefix_hit_rate"]
    assert slow["requests_per_s"] < 0.9 * fast["requests_per_s"]
    assert slow["breakdown_s.offload"] > 0


def test_the_worth_of_a_terabyte_is_a_slope():
    scenario = scenario_from_config(*DESIGN, *POPULAR)
    numbers = numbers_of(scenario)
    worth = prefix_worth(scenario, numbers)
    host = scenario.cluster.host.memory
    more = replace(scenario, {HOST: host.capacity_bytes + 1e9})  # of each of four: 4 GB in all
    result = (numbers_of(more)["prefix_hit_rate"] - numbers["prefix_hit_rate"]) * 250
    assert worth["host"].hit_ratio == pytest.approx(result, rel=0.02)
    assert worth["host"].usd == pytest.approx(worth["host"].requests * numbers["capex_usd"])
    assert worth["host"].price_usd == pytest.approx(1e12 * float(host.usd_per_byte))


SPACE = (
    "space.plan.tp=[1,2]", "space.plan.pp=[1]", "space.plan.ep=[1]", "space.plan.attention_dp=[1]",
    "space.plan.micro_batch=[16,32]", "space.plan.token_budget=[512,1024]",
)  # fmt: skip
BANDWIDTH = "space.hardware.bw={path: cluster.accelerator.hbm.bandwidth_bytes_per_s, low: 2e12, high: 4e12}"
CROSSING = "space.hardware.link={path: cluster.host.link.beta_s_per_byte, low: 1e-11, high: 1e-9}"
CAPACITY = "space.hardware.cap={path: cluster.accelerator.hbm.capacity_bytes, low: 60e9, high: 200e9}"


@pytest.mark.slow
def test_a_search_proves_with_rates_and_says_so_where_room_is_searched():
    """Every plan and the box's grid priced beside the bound: none below; with capacity open nothing is proven."""
    study = study_from_config(*DESIGN, *POPULAR, *SPACE, BANDWIDTH, CROSSING)
    proof = study.solve()[1].certificate
    assert proof.certified
    least = min(
        numbers_of(replace(study.scenario, {
            "plan.tp": leaf(tp), "plan.micro_batch": leaf(batch), "plan.token_budget": leaf(chunk),
            "cluster.accelerator.hbm.bandwidth_bytes_per_s": leaf(rate), LINK: leaf(beta),
        }))["usd_per_million_tokens"]
        for tp, batch, chunk in itertools.product((1, 2), (16, 32), (512, 1024))
        for rate, beta in itertools.product((2e12, 2.8e12, 4e12), (1e-11, 1e-10, 1e-9))
    )  # fmt: skip
    assert np.exp(proof.bound) <= least * (1 + 1e-9) or proof.bound <= least * (1 + 1e-9)
    room = study_from_config(*DESIGN, *POPULAR, *SPACE, BANDWIDTH, CAPACITY).solve()[1]
    assert room.certificate is None or not room.certificate.certified


@pytest.fixture
def written(tmp_path):
    asked = trace(3, 60)
    rows = [
        {"timestamp": round(1e3 * float(asked.arrivals[one])), "input_length": int(asked.prompts[one]),
         "output_length": int(asked.outputs[one]), "hash_ids": asked.hashes_of(one)} for one in range(len(asked))
    ]  # fmt: skip
    path = tmp_path / "prefixes.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    (tmp_path / "plain.csv").write_text("arrival_s,input_tokens,output_tokens\n0,5,5\n1,6,6\n2,7,7\n", encoding="utf-8")
    return path


def test_a_trace_is_kept_as_tables(written):
    scenario = scenario_from_config(*DESIGN, f"workload.prefix_cache={written}")
    reuse = scenario.workload.prefix_cache.reuse
    assert isinstance(reuse, TracedPrefixes)
    assert numbers_of(scenario)["prefix_hit_rate"] > 0.3


@pytest.mark.slow
def test_evaluate_says_what_a_terabyte_is_worth(capsys):
    assert main(["evaluate", *DESIGN, *POPULAR]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "prefix caches find" in told
    assert "a TB more of host memory over all devices" in told
    assert main(["evaluate", *DESIGN, *POPULAR, "--json"]) == 0
    assert "prefix_worth_usd_per_tb_hbm" in json.loads(capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--replicas", "4", "--rate", "2"]])
def test_requests_without_blocks_are_refused(words, capsys):
    assert main(["simulate", *DESIGN, *POPULAR, *words]) == 2
    assert "hash_ids" in capsys.readouterr().err


WRONG = [
    (("workload.prefix_cache=PLAIN",), "does not say which blocks prompts begin with"),
    (("workload.prefix_cache=nowhere.jsonl",), "nowhere.jsonl"),
    (("workload.prefix_cache.count=5",), "prefix_tokens"),
    (("workload.prefix_cache.store_bytes=1TB",), "give either a trace with hash_ids"),
    ((*POPULAR, "workload.prefix_cache.trace=TRACE"), "give either a trace with hash_ids"),
    (("workload.prefix_cache.trace=TRACE", "workload.prefix_cache.router=sticky"), "'session_sticky'"),
    (("workload.prefix_cache.trace=TRACE", "workload.prefix_cache.router=session_sticky"), "goes by a column session"),
    ((*POPULAR, "workload.cached_ratio=0.5"), "stands beside workload.prefix_cache"),
    ((*POPULAR, "workload.prefix_cache.zipf=9"), "workload.prefix_cache.reuse.zipf = 9"),
    (("workload=any_schedule", *POPULAR), "AnySchedule is not priced with one"),
    (("workload=disaggregated", "prefill=same", *POPULAR), "DisaggregatedServing is not priced with one"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_is_wrong_is_one_line(words, said, written):
    named = [word.replace("TRACE", str(written)).replace("PLAIN", str(written.parent / "plain.csv")) for word in words]
    with pytest.raises(ConfigError) as error:
        scenario_from_config(*DESIGN, *named)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
