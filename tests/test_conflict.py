"""Why nothing is feasible: factors that suffice and factors that do not, against calculus."""

import numpy as np
import pandas as pd
import pytest
from posynomial_oracles import Posynomials, scaled

from codesign.commands.infeasible import refuse_infeasible
from codesign.config import study_from_config
from codesign.core.errors import ConfigError
from codesign.report.proof import explained
from codesign.search import Certificate
from codesign.search.branch_and_bound.bounding import SearchEffort
from codesign.search.branch_and_bound.certified import Conflict
from codesign.search.branch_and_bound.oracle import GOAL
from codesign.search.results import Results


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
    conflict = Conflict(
        conflicting(), rows, SearchEffort(gap=1e-4), 0, lambda progress: told.append(progress.done)
    ).explain()
    money, time, harmless = conflict.proof
    assert not any(row.alone for row in conflict.proof)
    assert money.needed == pytest.approx(2.0, rel=1e-3)
    assert time.needed == pytest.approx(2.0, rel=1e-3)
    assert harmless.needed == 1.0 == harmless.together
    assert money.together == pytest.approx(np.sqrt(20 * 4 / 0.075), rel=1e-3)
    assert money.together * time.together == pytest.approx(20 * 4 / 0.075, rel=1e-3)
    assert conflict.design is not None
    assert conflict.design[0].tolist() == [0]
    assert told == sorted(told)


def test_conflict_that_one_constraint_can_end():
    oracle = conflicting()
    alone = Conflict(oracle, ("money", "harmless"), SearchEffort(gap=1e-4), 0).explain()
    assert alone.proof[0].alone
    assert alone.proof[0].factor == pytest.approx(2.0, rel=1e-3)
    assert not alone.proof[1].alone
    assert alone.proof[0].together is None


def test_an_interrupted_explanation_says_nothing():
    def impatient(progress):
        raise KeyboardInterrupt

    cut = Conflict(conflicting(), ("money", "time"), SearchEffort(gap=1e-4), 0, impatient).explain()
    assert cut.proof == []
    assert cut.design is None


def rows(**given: float) -> list[dict]:
    """Of a certificate: a conflict of capex, power and HBM."""
    least = {"capex_usd": 1.2, "provisioned_power_w": 1.0, "usage.hbm": 1.0}
    return [
        {"constraint": name, "alone": False, "factor": None, "factor_at_least": None, "needed": low,
         "together": given.get(name, 1.0)}
        for name, low in least.items()
    ]  # fmt: skip


def claiming(conflict: list[dict]) -> Certificate:
    return Certificate.from_json({"infeasible": conflict})


def test_a_conflict_is_told_in_the_words_of_the_configuration():
    study = study_from_config("objective.limits.capex_usd=1e6")
    empty, nothing, one = pd.DataFrame(), pd.DataFrame({"feasible": [False]}), pd.DataFrame({"feasible": [True]})
    nothing, one = (Results(best, empty, empty, empty) for best in (nothing, one))
    together = claiming(rows(**{"capex_usd": 40.0, "usage.hbm": 1.5}))
    with pytest.raises(ConfigError) as refused:
        refuse_infeasible(study, nothing.best, together)
    assert "together: objective.limits.capex_usd = $40 M instead of $1 M and 1.5 times the HBM" in str(refused.value)
    assert "power" not in str(refused.value)
    alone = rows()
    alone[0] |= {"alone": True, "factor": 40.0, "factor_at_least": 39.9}
    with pytest.raises(ConfigError, match=r"enough, with all else as it is, would be objective.limits.capex_usd"):
        refuse_infeasible(study, nothing.best, claiming(alone))
    refuse_infeasible(study, one.best, together)


def test_a_conflict_is_told_in_a_table():
    together = explained(claiming(rows(capex_usd=40.0)))
    assert together.head == ("Constraint", "Must give, whatever the others do", "Enough together")
    assert together.rows[0][1:] == ("a factor of 1.2", "a factor of 40")
    assert together.rows[1][1:] == ("nothing", "nothing")
    one = rows()
    one[0] |= {"alone": True, "factor": 40.0, "factor_at_least": 39.9}
    assert explained(claiming(one)).rows[0][1] == "a factor of 40 suffices, 39.9 does not"
    one[0] |= {"factor_at_least": None}  # of a model that is not convex nothing is proven
    assert explained(claiming(one)).rows[0][1] == "a factor of 40 suffices"
