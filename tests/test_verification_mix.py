"""`codesign verify` on mixes: honest proofs are verified, lies are refused by the line that names them."""

import copy
import dataclasses
import itertools
import math

import numpy as np
import pytest
from builders import gpt3, training

from codesign.errors import ConfigError
from codesign.objective import Objective
from codesign.run.certificate import read_certificate, write_certificate
from codesign.run.verify import same_claim
from codesign.run.verify_mix import answer_of_mix, asked_of_mix
from codesign.search import Cases, Entry, Mix, Problem, Trace, Uncertain
from codesign.search.mix_bound import Proof
from codesign.search.mix_goal import HOW
from codesign.search.mix_goal import Blend as Searched
from codesign.space import Continuous, DesignSpace
from codesign.verification import AskedMix
from codesign.verification.blend import Blend
from codesign.verification.mix_tuples import Cuts, bounded
from codesign.verification.study import Model

TARGETS = ("energy_j",)
SPACE = DesignSpace(
    plan={"tp": [2, 4, 8], "pp": [4, 8], "recompute": ["none", "full"], "micro_batch": [1, 2]},
    hardware={
        "up": Continuous("cluster.network.scale_up.fabric.bandwidth_bytes_per_s", 50e9, 3600e9),
        "hbm": Continuous("cluster.accelerator.hbm.capacity_bytes", 10e9, 160e9),
    },
)
Stored = tuple[dict, dict]


def problem(limit: float, batch: float, layers: float) -> Problem:
    scenario = training(model=gpt3(layers=layers))
    scenario = dataclasses.replace(scenario, workload=dataclasses.replace(scenario.workload, global_batch=batch))
    return Problem(scenario, SPACE, Objective("usd_per_million_tokens", limits={"time_s": limit}))


PROBLEMS = {"short": problem(9.0, 512.0, 96.0), "small": problem(20.0, 1024.0, 48.0)}  # want memory in other plans


def mix_of(how: str, relative: bool = False) -> Mix:
    entries = {"short": Entry(weight=2.0), "small": Entry()}
    return Mix(entries, how=how, relative=relative, gap=2e-3, pairs=64).bound(PROBLEMS)


def asked_by(mix: Mix) -> AskedMix:
    asked = asked_of_mix(mix)
    few = {name: dataclasses.replace(one, targets=TARGETS) for name, one in asked.workloads.items()}
    return dataclasses.replace(asked, workloads=few)


@pytest.fixture(scope="module")
def models() -> list[Model]:
    """One program: the scenario is an argument."""
    first = Model(next(iter(asked_by(mix_of("sum")).workloads.values())))
    second = copy.copy(first)
    second.asked = asked_by(mix_of("sum")).workloads["small"]
    return [first, second]


def kept(trace: Trace, folder) -> Stored:
    assert trace.evidence is not None
    write_certificate(trace.evidence, folder)
    found = read_certificate(folder)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def solved() -> dict[str, Trace]:
    return {}


def trace_of(how: str, solved: dict[str, Trace]) -> Trace:
    if how not in solved:
        solved[how] = mix_of(how, how == "worst").run(PROBLEMS["short"], 0)
    return solved[how]


def answer(how: str, trace: Trace, stored: Stored, models: list[Model], attack: int = 0, **claimed):
    asked = asked_by(mix_of(how, how == "worst"))
    silent = lambda stage, done, total: None  # noqa: E731
    return answer_of_mix(asked, trace.certificate | claimed, stored, attack, 0, silent, same_claim, models)


@pytest.mark.parametrize("how", HOW)
def test_an_honest_mix_is_verified(how, solved, models, tmp_path):
    trace = trace_of(how, solved)
    assert trace.certificate["certified"], trace.claim
    told = answer(how, trace, kept(trace, tmp_path), models, 6000)
    assert told.verified, told.line
    assert told.line.startswith(f"verified: no {how} of 2 goals")
    assert told.numbers["bound"] == pytest.approx(trace.certificate["bound"], rel=1e-2)
    assert told.numbers["best_of_attack"] <= trace.certificate["best"] * (1 + 1e-4)
    print(told.checks, trace.evidence.header["counts"] if "counts" in trace.evidence.header else "")
