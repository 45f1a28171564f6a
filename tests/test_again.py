"""Programs made once for numbers that change: another limit gives what it gives where nothing was kept."""

import dataclasses
import importlib
import itertools
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign import study_from_config
from codesign.search import Certified
from codesign.search.branch_and_bound.node_relaxation import oracle_for
from codesign.search.branch_and_bound.oracle import rows_of
from codesign.search.exhaustive.grid import BLOCK, Sweep
from codesign.search.results import designs
from codesign.staging import at_points, base_of, chained, flatten
from codesign.staging.again import Made, made_again, program_key, with_numbers

STORES = {
    "staging.again": ("_written", "_alike"), "staging.model": ("_programs",), "staging.running": ("_running",),
    "staging.rows": ("_made",), "staging.tables": ("_early",), "staging.staged": ("_early",),
    "staging.derivatives": ("_made",), "staging.points": ("_prepared",), "curvature.walk": ("_early",),
}  # fmt: skip


@pytest.fixture
def forget(monkeypatch):
    """Empties whatever is kept."""

    def empty() -> None:
        for place, names in STORES.items():
            module = importlib.import_module(f"codesign.{place}")
            for name in names:
                assert isinstance(getattr(module, name), OrderedDict)
                monkeypatch.setattr(module, name, OrderedDict())

    return empty


def limited(problem, **limits):
    return dataclasses.replace(problem, objective=dataclasses.replace(problem.objective, limits=limits))


def told(problem):
    """What a search asks of a problem, as arrays: rows and slopes, what the walk says, a block of the grid."""
    oracle, rng = oracle_for(problem, rows_of(problem), 512), np.random.default_rng(0)
    plan, u = oracle.sample(rng, 64), rng.uniform(size=(64, len(oracle.variables)))
    plan = np.resize(plan, 64)
    result, values = oracle.tangents(plan, u, 50.0), oracle.values(plan, u)
    known = oracle.judged()
    sweep = Sweep(problem, BLOCK, 4)
    block = sweep.evaluated(*sweep.block_at(0))
    return {
        "exact": result.exact, "affine": result.affine, "broken": result.broken, "values": values[0],
        "goal": block.goal,
        "excess": block.excess, "walk": repr((sorted(known.rows.items()), known.rules)), "names": repr(oracle.names),
    }  # fmt: skip


def every_number(columns):
    """A table to the last bit: its repr leaves rows out."""
    return {name: (np.asarray(column).dtype.str, np.asarray(column).tolist()) for name, column in columns.items()}


def same(first, second) -> bool:
    return all(
        np.array_equal(first[name], second[name], equal_nan=first[name].__class__ is np.ndarray) for name in first
    )


@pytest.mark.slow
def test_rows_of_another_limit_are_those_of_a_fresh_process(forget):
    """Limits that change, that are equal to each other, to numbers of the model, and different again."""
    problem = study_from_config("experiment=train_gpt3_175b").problem
    number = next(float(x) for x in base_of(problem.scenario).program.constants.values() if x.shape == () and x > 1)
    pairs = [(52e6, 3e6), (54e6, 3e6), (3e6, 3e6), (number, 4e6)]
    asked = [limited(problem, capex_usd=first, power_w=second) for first, second in pairs]
    forget()
    kept = [told(each) for each in asked]
    for each, answer in zip(asked, kept, strict=True):
        forget()
        assert same(told(each), answer)
    assert not same(kept[0], kept[1])


@pytest.mark.slow
def test_a_certificate_does_not_depend_on_what_was_asked_before(forget):
    """Two limits in turn, and each where nothing was kept: the same designs, bound and evidence."""
    problem = study_from_config("experiment=serve_llama31_405b").problem
    limits = dict(problem.objective.limits)
    name, value = next(iter(limits.items()))
    asked = [limited(problem, **limits | {name: value * factor}) for factor in (1.0, 1.05)]

    def answers(each):
        trace = Certified(gap=1e-2).run(each, 0)
        assert trace.evidence is not None
        return {
            "claim": trace.claim, "bound": repr(trace.certificate.bound), "designs": repr(designs(each, trace, 0)),
            **{table: every_number(columns) for table, columns in trace.evidence.tables.items()},
        }  # fmt: skip

    forget()
    kept = [answers(each) for each in asked]
    for each, answer in zip(asked[1:], kept[1:], strict=True):
        forget()
        assert answers(each) == answer


def test_numbers_that_were_merged_are_not_put_in_each_others_place():
    """A factor of any value behind a program, and before an operation that has a constant of its own."""

    @jax.custom_jvp
    def plus(x):
        return x + 5.0

    plus.defjvps(lambda moved, _, x: moved)
    first = flatten(jax.make_jaxpr(lambda x: [x * 2.0, x + 7.0])(1.0))
    store: OrderedDict[str, Made] = OrderedDict()
    for a, b in itertools.permutations([2.0, 3.0, 5.0, 7.0, 11.0], 2):
        second = flatten(jax.make_jaxpr(lambda y, z, a=a, b=b: [plus(y / a) + z / b, y * b])(1.0, 1.0))
        fed = dict(zip(second.inputs, first.outputs, strict=True))
        known = {slot + len(first.shapes): value for slot, value in second.constants.items()}
        made = made_again(store, "", second, known, lambda s=second, f=fed: chained(first, s, f), 9)
        result = [float(each[0]) for each in at_points(made, [], [np.array([1.5])])]
        y, z = 1.5 * 2.0, 1.5 + 7.0
        assert result == [y / a + 5.0 + z / b, y * b], (a, b)


def test_a_number_equal_to_another_is_not_replaced():
    """Only where it is one of a kind, before and after."""
    program = flatten(jax.make_jaxpr(lambda x: x * 2.0 + 3.0)(jnp.asarray(1.0)))
    slots = {float(value): slot for slot, value in program.constants.items()}
    changed = with_numbers(program, {slots[3.0]: np.asarray(5.0)})
    assert changed is not None
    assert program_key(changed) == program_key(program)
    assert float(at_points(changed, [], [np.array([10.0])])[0][0]) == 25.0
    assert with_numbers(program, {slots[3.0]: np.asarray(2.0)}) is None
    assert with_numbers(program, {len(program.shapes): np.asarray(9.0)}) is None


def test_jobs_that_differ_in_a_limit_share_their_scenario():
    """Tables are kept of objects; another number of the scenario is another object."""
    job = "experiment=train_gpt3_175b"
    one, other = (study_from_config(job, f"objective.limits.capex_usd={limit}") for limit in (52e6, 54e6))
    warmer = study_from_config(job, "cluster.facility.pue=1.37")
    assert one.scenario is other.scenario
    assert one.objective.limits != other.objective.limits
    assert warmer.scenario is not one.scenario
    assert float(warmer.scenario.cluster.facility.pue) == 1.37
