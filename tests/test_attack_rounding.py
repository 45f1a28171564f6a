"""A small run of `qa/attack_rounding.py`: what it proves holds, harmless goals keep their proof, a lie is seen."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import ROOT


@pytest.fixture(scope="module")
def attack():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "qa")
        import attack_rounding

        patch.setattr(attack_rounding, "SPACES", attack_rounding.SPACES[:1])
        patch.setattr(attack_rounding, "PROOF", dataclasses.replace(attack_rounding.PROOF, gap=1e-2))
        yield attack_rounding


@pytest.mark.slow
def test_no_certificate_of_a_small_run_is_false(attack, capsys):
    assert attack.main(["--count", "6", "--seed", "1", "--designs", "64", "--by-numpy"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 7
    assert "0 of them false; 100.0% of 3 harmless goals keep their proof" in out[-1]


def test_a_bound_above_a_design_is_seen(attack):
    """The least of the designs refutes whatever lies above it, by more than bounds are claimed to."""
    seen = Seen(jnp.asarray([3.0, 2.0, 1.0]), jnp.asarray([0.0, 0.0, 0.1]))
    for bound, refuted in ((2.0, False), (2.0 * (1 + 5e-9), False), (2.0 * (1 + 5e-8), True), (None, True)):
        assert attack.below(Goals(), bound, [seen]) == (2.0, refuted)
    assert attack.below(Goals(), None, [Seen(jnp.asarray([1.0]), jnp.asarray([0.1]))]) == (np.inf, False)


class Seen(NamedTuple):
    """Goals and violations of designs."""

    goals: jnp.ndarray
    excess: jnp.ndarray


class Goals:
    """Stands in for an objective."""

    def value(self, seen, name):
        return seen.goals

    def excess(self, seen):
        return seen.excess
