"""RL post-training: rollouts against an event simulation, modes by hand, slopes, curvature, a proven split."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from codesign import solve
from codesign.commands.cli import main
from codesign.config import scenario_from_config, study_from_config
from codesign.config.memory_advice import smallest_change
from codesign.core.errors import ConfigError
from codesign.core.fields import get_path, replace
from codesign.jaxprs.evaluator import interpreted
from codesign.model.metrics import evaluate
from codesign.model.networks.fabrics import Group
from codesign.model.workloads.response_lengths import cut_lengths, drained

SMALL = (
    "workload=rl_post_training", "model=qwen25_7b", "accelerator=h20", "plan.device_count=16", "workload.prompts=64",
    "workload.updates=4",
)  # fmt: skip
APART = ("plan.rollout_devices=8",)
MODES = ("colocated", "synchronous", "one_step_off", "asynchronous")
FIXED = {"rollout_tp": 1, "tp": 1, "micro_batch": 1, "recompute": "full", "zero": 3}
RATES = (
    "cluster.accelerator.hbm.bandwidth_bytes_per_s", "cluster.network.scale_up.fabric.bandwidth_bytes_per_s",
    "cluster.network.scale_out.fabric.bandwidth_bytes_per_s",
)  # fmt: skip


def scenario(*overrides):
    return scenario_from_config(*SMALL, *overrides)


def metrics(*overrides):
    return {name: float(value) for name, value in evaluate(scenario(*overrides)).flat().items()}


def step_s(batch, context):
    """Seconds of a decode step as of a 7B model: weights, sequences, caches."""
    return 5e-3 + 2e-5 * batch + 2e-9 * batch * context


def simulated(lengths, prompt, slots, replicas):
    """Seconds to the last response: engines decode step by step, a free slot takes the next of one queue."""
    queue = list(lengths[::-1])
    left = [np.array([queue.pop() for _ in range(min(slots, len(queue)))], float) for _ in range(replicas)]
    done = [np.zeros(len(each)) for each in left]
    clock = np.zeros(replicas)
    working = np.array([len(each) > 0 for each in left])
    while working.any():
        at = int(np.argmin(np.where(working, clock, np.inf)))
        run = left[at].min()
        clock[at] += run * step_s(len(left[at]), prompt + done[at].mean() + run / 2)
        keep = left[at] > run
        fresh = [queue.pop() for _ in range(min(int((~keep).sum()), len(queue)))]
        left[at] = np.concatenate([left[at][keep] - run, fresh])
        done[at] = np.concatenate([done[at][keep] + run, np.zeros(len(fresh))])
        working[at] = len(left[at]) > 0
    return clock.max()


def modelled(mean, cv, most, replicas, slots, count):
    result = drained(
        *(cut_lengths(*map(jnp.asarray, (mean, cv, most))), *map(jnp.asarray, (500.0, count, slots, replicas)))
    )
    return result, float((result.steps * step_s(result.batch, result.context)).sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mean", "cv", "most"), [(2000.0, 1.0, 10000.0), (4000.0, 0.5, 9000.0), (4000.0, 1.5, 20000.0)]
)
@pytest.mark.parametrize(("replicas", "slots", "count"), [(8, 64, 64), (8, 64, 96), (8, 64, 256), (4, 16, 256)])
def test_the_last_response_comes_when_a_simulation_says(mean, cv, most, replicas, slots, count):
    """8 % of the mean of six simulations, one to sixteen rounds of slots; cv 0.5 to 1.5.

    Lengths are drawn from equally likely ranges, one each, in random order: the longest of few then vary less.
    """
    _, model = modelled(mean, cv, most, float(replicas), float(slots), float(count))
    spread, seconds, number = np.sqrt(np.log1p(cv**2)), [], count * replicas
    for seed in range(6):
        rng = np.random.default_rng(seed)
        drawn = norm.ppf((rng.permutation(number) + rng.uniform(size=number)) / number)
        lengths = np.clip(np.rint(mean * np.exp(spread * drawn - spread**2 / 2)), 1, most)
        seconds.append(simulated(lengths, 500.0, slots, replicas))
    assert model == pytest.approx(np.mean(seconds), rel=0.08)


def paced(draw, prompt, slots, replicas, count, staleness, periods=14, settled=4):
    """Seconds of a period that completes `count` responses of every engine where rollouts go on through new weights.

    No more begin than `staleness` periods of responses before the weights of their own; who is under way stays so.
    """
    number, clock = count * replicas, np.zeros(replicas)
    left, done = [np.zeros(0)] * replicas, [np.zeros(0)] * replicas
    begun, ended, marks = 0, 0, []
    while len(marks) < periods:
        allowed = int((len(marks) + 1 + staleness) * number) - begun
        while allowed > 0 and min(len(each) for each in left) < slots:  # to the emptiest engine
            at = int(np.argmin([len(each) for each in left]))
            left[at], done[at] = np.append(left[at], draw(1)), np.append(done[at], 0.0)
            begun, allowed = begun + 1, allowed - 1
        works = [len(each) > 0 for each in left]
        at = int(np.argmin(np.where(works, clock, np.inf)))
        run = left[at].min()
        clock[at] += run * step_s(len(left[at]), prompt + done[at].mean() + run / 2)
        keep = left[at] > run
        ended += int((~keep).sum())
        left[at], done[at] = left[at][keep] - run, done[at][keep] + run
        if ended >= (len(marks) + 1) * number:
            marks.append(clock[at])
            clock = np.maximum(clock, np.where([len(each) > 0 for each in left], clock, clock[at]))
    return (marks[-1] - marks[settled - 1]) / (periods - settled)


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize(("cv", "slots", "count"), [(1.0, 256, 64), (0.7, 64, 64), (1.5, 32, 96)])
def test_a_pipeline_of_rollouts_goes_as_fast_as_a_simulation_of_it(staleness, cv, slots, count):
    """10 % from a tenth of a step of staleness to three, slots for all responses or for a third of them."""
    mean, most, replicas, spread = 2000.0, 12000.0, 4, np.sqrt(np.log1p(cv**2))
    rng = np.random.default_rng(1)

    def draw(number):
        return np.clip(np.rint(mean * np.exp(spread * rng.standard_normal(max(number, 0)) - spread**2 / 2)), 1, most)

    lengths = cut_lengths(*map(jnp.asarray, (mean, cv, most)))
    numbers = map(jnp.asarray, (500.0, float(count), float(slots), float(replicas), staleness))
    result = drained(lengths, *numbers)
    model = float((result.steps * step_s(result.batch, result.context)).sum())
    assert model == pytest.approx(paced(draw, 500.0, slots, replicas, count, staleness), rel=0.10)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [0.5, 1.0, 1.3, 3.0, 40.0])
@pytest.mark.parametrize("stale", [0.0, 0.3, 4.0])
def test_no_token_is_lost(rounds, stale):
    """Slot-steps of all levels are the tokens of all responses, whatever is under way when a batch is complete."""
    lengths = cut_lengths(*map(jnp.asarray, (2000.0, 0.9, 16000.0)))
    result = drained(lengths, *map(jnp.asarray, (500.0, 64.0 * rounds, 64.0, 1.0, stale)))
    assert float((result.steps * result.batch).sum()) == pytest.approx(64 * rounds * float(lengths.mean()), rel=5e-3)


def test_memoryless_responses_take_the_logarithm_of_what_is_left():
    """Nearly: a lognormal with the variation of an exponential, on enough slots; mu log(1 + n / l) steps."""
    lengths = cut_lengths(*map(jnp.asarray, (1000.0, 1.0, 1e9)))
    result = drained(lengths, *map(jnp.asarray, (0.0, 64.0, 1e3, 1.0, 1.0)))
    assert float(result.steps.sum()) == pytest.approx(1000 * np.log(2), rel=0.1)


def test_equal_responses_on_enough_slots_take_their_length():
    result, _ = modelled(1000.0, 0.0, 4000.0, 4.0, 64.0, 64.0)
    assert float(result.steps.sum()) == pytest.approx(1000.0, rel=1e-6)
    assert float(result.context[0]) == pytest.approx(500.0 + 500.0, rel=1e-6)


def test_cut_lengths_keep_their_mean_and_end_at_the_maximum():
    free, cut = (cut_lengths(jnp.asarray(1000.0), jnp.asarray(1.0), jnp.asarray(most)) for most in (1e9, 3000.0))
    assert float(free.mean()) == pytest.approx(1000.0, rel=1e-6)
    assert float(free.cv()) == pytest.approx(1.0, rel=0.02)  # what lies beyond a millionth is left out
    assert float(cut.tokens.max()) == 3000.0
    assert float(cut.mean()) < 1000.0


@pytest.mark.slow
def test_modes_are_sums_and_maxima_of_their_parts():
    for mode, compose in {
        "synchronous": lambda found: found["rollout_s"] + found["training_s"],
        "one_step_off": lambda found: max(found["rollout_s"], found["training_s"]),
    }.items():
        result = metrics(f"plan.mode={mode}", *APART)
        assert result["time_s"] == pytest.approx(compose(result) + result["weight_sync_s"], rel=1e-5)
    result = metrics("plan.mode=colocated", "plan.rollout_devices=0")
    parts = result["rollout_s"] + result["training_s"] + result["weight_sync_s"] + result["switch_s"]
    assert result["time_s"] == pytest.approx(parts, rel=1e-5)
    assert result["switch_s"] > 0
    assert result["memory_bytes.ddr/swapped"] > 0
    for mode in ("colocated", "asynchronous"):
        result = metrics(f"plan.mode={mode}", "plan.rollout_devices=" + ("0" if mode == "colocated" else "8"))
        assert sum(value for name, value in result.items() if name.startswith("breakdown_s.")) == pytest.approx(
            result["time_s"], rel=1e-5
        )


@pytest.mark.slow
def test_asynchronous_rollouts_are_between_no_tail_and_the_whole_tail():
    """Without staleness all of a step's responses are waited for; the more may be under way, the sooner."""
    free = ("plan.mode=asynchronous", *APART, "workload.recompute_cache=0")
    waits = metrics("plan.mode=synchronous", *APART)["rollout_s"]
    result = [metrics(*free, f"plan.staleness={staleness}")["rollout_s"] for staleness in (0, 0.1, 0.3, 1, 4)]
    assert result[0] == pytest.approx(waits, rel=1e-5)
    assert (np.diff(result) <= 1e-6).all()
    assert result[3] < 0.9 * waits
    anew = metrics("plan.mode=asynchronous", *APART, "plan.staleness=4")["rollout_s"]
    assert anew > result[-1]


@pytest.mark.slow
def test_swapped_parts_need_the_larger_of_both_and_kept_parts_the_sum():
    swapped, kept = (metrics("plan.mode=colocated", "plan.rollout_devices=0", f"plan.swap={swap}") for swap in (1, 0))
    both = swapped["rollout_memory_bytes"] + swapped["trainer_memory_bytes"]
    near = {name: sum(v for k, v in result.items() if k.startswith("memory_bytes.hbm")) for name, result in
            {"swapped": swapped, "kept": kept}.items()}  # fmt: skip
    assert near["kept"] == pytest.approx(both, rel=1e-5)
    assert near["swapped"] == pytest.approx(
        max(swapped["rollout_memory_bytes"], swapped["trainer_memory_bytes"]), rel=1e-5
    )


@pytest.mark.slow
def test_new_weights_cross_the_slower_network_once():
    """15.2 GB of bf16 weights, at what the eight cards of a node give, then to the others of the node."""
    result = scenario("plan.mode=synchronous", *APART)
    seconds = float(evaluate(result).get("weight_sync_s"))
    beta = [
        result.cluster.network[name].fabric.link(Group(jnp.asarray(2.0))).beta_s_per_byte
        for name in result.cluster.levels
    ]
    weights = float(result.workload.engine().weight_bytes(result.plan.rollouts(jnp.asarray(16.0))))
    assert weights == pytest.approx(2 * 7.615e9, rel=1e-3)
    assert 0.8 * weights * float(max(beta)) / 8 <= seconds <= 1.5 * weights * float(sum(beta))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["colocated", "asynchronous"])
def test_slopes_are_those_of_differences_and_batches_those_of_single_calls(mode):
    """Of the time in the hardware; of rollouts in lengths (training works on whole micro-batches)."""
    one = scenario(f"plan.mode={mode}", "plan.rollout_devices=" + ("0" if mode == "colocated" else "8"))
    paths = (*RATES, "workload.output_tokens", "workload.output_cv")
    names = [f"x{index}" for index in range(len(paths))]

    def told(scales):
        moved = {path: scales[name] * get_path(one, path) for path, name in zip(paths, names, strict=True)}
        result = evaluate(replace(one, moved))
        return result.time_s, result.get("rollout_s")

    step = 0.002
    offsets = np.concatenate([np.zeros((1, len(paths))), step * np.eye(len(paths)), -step * np.eye(len(paths))])
    columns = {name: jnp.asarray(1 + offsets[:, index]) for index, name in enumerate(names)}
    values = np.stack([np.asarray(each) for each in interpreted(jax.vmap(told), always=True)(columns)], 1)
    centre = {name: jnp.asarray(1.0) for name in names}
    slopes = interpreted(jax.jacrev(told), always=True)(centre)
    assert [float(each) for each in jax.jit(told)(centre)] == pytest.approx(values[0], rel=1e-5)
    plain = evaluate(one)
    assert values[0] == pytest.approx([float(plain.time_s), float(plain.get("rollout_s"))], rel=1e-5)
    for index, name in enumerate(names):
        which = 0 if index < len(RATES) else 1
        difference = (values[1 + index, which] - values[1 + len(names) + index, which]) / (2 * step)
        assert float(slopes[which][name]) == pytest.approx(difference, rel=0.03, abs=2e-3 * values[0, which])


@pytest.mark.slow
def test_a_proven_split_is_the_best_of_all_that_are_priced():
    """The certified optimum of a small space against every plan by `evaluate`, at the same fixed hardware."""
    listed = {"mode": MODES, "rollout_devices": (0, 8), "rollout_slots": (64, 256)}
    space = [f"space.plan.{name}=[{','.join(map(str, values))}]" for name, values in listed.items()]
    fixed = [f"space.plan.{name}=[{value}]" for name, value in FIXED.items()]
    study = study_from_config(*SMALL, "search=certified", "objective=fastest_step", *space, *fixed)
    result = solve(study)
    best = result.best
    every = []
    for mode in MODES:
        for slots in listed["rollout_slots"]:
            plan = (f"plan.mode={mode}", f"plan.rollout_devices={0 if mode == 'colocated' else 8}")
            priced = evaluate(
                scenario(*plan, f"plan.rollout_slots={slots}", *(f"plan.{n}={v}" for n, v in FIXED.items()))
            )
            if float(priced.get("usage.hbm")) <= 1:
                every.append(float(priced.time_s))
    assert best["time_s"] == pytest.approx(min(every), rel=1e-4)
    assert result.bound <= min(every) * (1 + 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("override", "expected"), [
    ("plan.rollout_devices=20", "at most 15"),
    ("plan.staleness=-1", "outside [0, 64]"),
    ("workload.output_tokens=30000", "workload.max_output_tokens = 20480"),
    ("plan.mode=eventually", "does not exist"),
    ("plan.rollout_tp=3", "does not divide the 8 devices of rollouts"),
])  # fmt: skip
def test_wrong_input_is_one_line(override, expected, capsys):
    code = main(["evaluate", *SMALL, *APART, override])
    told = capsys.readouterr().err.strip().splitlines()
    assert code == 2
    assert len(told) == 1
    assert expected in told[0]


def test_a_number_of_devices_that_would_not_count_is_refused():
    with pytest.raises(ConfigError, match=r"cluster\.device_count = 64 would not count.*take plan\.device_count=64"):
        scenario_from_config("workload=rl_post_training", "model=qwen25_7b", "cluster.device_count=64")
    assert float(scenario_from_config("workload=rl_post_training", "plan.device_count=64").layout.devices) == 64


@pytest.mark.slow
def test_fewer_responses_together_make_room():
    """The smallest change that fits is one of the rollout engine, where that is what does not fit."""
    one = scenario_from_config("workload=rl_post_training", "model=llama31_8b", "accelerator=h100_sxm")
    assert smallest_change(one) in (["plan.rollout_slots=64"], ["plan.rollout_tp=2"])
