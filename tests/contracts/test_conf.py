"""Every study of conf/ can start, and what a run folder keeps builds it again. Its parts: test_ends.py.

Parametrised from the folder: a new YAML is tested the day it is added.
"""

import jax
import pytest
from contracts.choices import companions, options
from tiers import EXPERIMENTS, mostly_slow

from codesign.commands.optimize import check_study
from codesign.config import compose, study_from_config
from codesign.config.parts_built import SCENARIO, plain
from codesign.config.study import study_from_resolved

STUDY = ("space", "objective", "search", "experiment")


@pytest.mark.parametrize("choice", mostly_slow(options(*STUDY), quick=[f"experiment={name}" for name in EXPERIMENTS]))
def test_every_study_can_start(choice):
    """Paths, metric names and legal plans are there, no range is unusual; nothing is searched."""
    overrides = [choice]
    if choice.startswith("space=serving"):
        overrides += ["workload=static_batch"]
    overrides += companions(choice)
    if choice == "space=fixed":
        overrides += ["objective.limits={}"]
    study = study_from_config(*overrides)
    assert not [one.text for one in study.unusual]
    check_study(study)


def test_a_resolved_configuration_builds_the_same_study():
    """What a run folder keeps is enough to build the study again."""
    config = compose([])
    first, again = study_from_resolved(config), study_from_resolved(type(config)(plain(config)))
    assert jax.tree.structure(first.scenario) == jax.tree.structure(again.scenario)
    for key in SCENARIO:
        one, other = (jax.tree.leaves(getattr(study.scenario, key)) for study in (first, again))
        assert [float(leaf) for leaf in one] == [float(leaf) for leaf in other]
