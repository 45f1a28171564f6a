"""Why nothing is feasible: factors that suffice and factors that do not, against calculus."""

import numpy as np
import pytest
from posynomial_oracles import Posynomials, scaled

from codesign.search.conflict import Conflict
from codesign.search.effort import Effort
from codesign.search.oracle import GOAL


def conflicting() -> Posynomials:
    """x, y from 0.05 to 20 with 20 (x + y) <= 1 and max(3 / x, 1 / y) <= 0.075: each alone lacks a factor of 2.

    Nothing of the sort holds for x <= 1000.
    """
    oracle = scaled([(3.0, 1.0), (6.0, 2.0)])
    for plan in oracle.rows["money"]:
        plan[0] = [(c * 40, power) for c, power in plan[0]]
    oracle.rows["time"] = [[[(c / 0.075, power) for c, power in part] for part in plan] for plan in oracle.rows[GOAL]]
    oracle.rows["harmless"] = [[[(0.05 / 1000, np.array([1.0, 0.0]))]] for _ in oracle.rows[GOAL]]
    return Posynomials(oracle.rows, oracle.width)


def test_constraints_of_which_none_can_give_enough_alone_give_together():
    """money * time >= 20 (3 + 1) / 0.075 for the better plan, so that the least factor both can share is its root."""
    told: list[int] = []
    rows = ("money", "time", "harmless")
    conflict = Conflict(conflicting(), rows, Effort(gap=1e-4), 0, lambda progress: told.append(progress.done)).explain()
    money, time, harmless = conflict.proof
    assert not any(row["alone"] for row in conflict.proof)
    assert money["needed"] == pytest.approx(2.0, rel=1e-3)
    assert time["needed"] == pytest.approx(2.0, rel=1e-3)
    assert harmless["needed"] == 1.0 == harmless["together"]
    assert money["together"] == pytest.approx(np.sqrt(20 * 4 / 0.075), rel=1e-3)
    assert money["together"] * time["together"] == pytest.approx(20 * 4 / 0.075, rel=1e-3)
    assert conflict.design is not None
    assert conflict.design[0].tolist() == [0]
    assert told == sorted(told)


def test_conflict_that_one_constraint_can_end():
    oracle = conflicting()
    alone = Conflict(oracle, ("money", "harmless"), Effort(gap=1e-4), 0).explain()
    assert alone.proof[0]["alone"]
    assert alone.proof[0]["factor"] == pytest.approx(2.0, rel=1e-3)
    assert not alone.proof[1]["alone"]
    assert alone.proof[0]["together"] is None


def test_an_interrupted_explanation_says_nothing():
    def impatient(progress):
        raise KeyboardInterrupt

    cut = Conflict(conflicting(), ("money", "time"), Effort(gap=1e-4), 0, impatient).explain()
    assert cut.proof == []
    assert cut.design is None
