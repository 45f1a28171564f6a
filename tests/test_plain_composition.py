"""Files merged as plain mappings against Hydra's own composition of them."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from codesign.config import available
from codesign.config.composition import _by_hydra, _parse
from codesign.config.groups import conf_dir, groups
from codesign.config.plain_composition import UnsupportedMerge, _merge, as_config, compose_plainly

CHOICES = [f"{group}={[*available(group)][-1]}" for group in groups()]
TOGETHER = 8  # compositions in which all groups are chosen once: Hydra takes most of a second for each
TYPICAL = [(), *(tuple(CHOICES[first::TOGETHER]) for first in range(TOGETHER))]
TYPICAL += [("experiment=serve_llama31_405b",), ("workload=disaggregated", "prefill=same"), ("~facility",)]
TYPICAL += [("+calibration/power=b200",), ("+calibration@cluster.accelerator.kernels=h100_sxm_roofline",)]


def same_nodes(one, other) -> bool:
    """Whether two configurations are alike in everything but where they stand and what they look up again."""
    of_one, of_other = ({**vars(node), "_parent": None, "_flags_cache": None} for node in (one, other))
    content, others = of_one.pop("_content", None), of_other.pop("_content", None)
    if type(one) is not type(other) or of_one != of_other or type(content) is not type(others):
        return False
    if isinstance(content, dict):
        return [*content] == [*others] and all(map(same_nodes, content.values(), others.values()))
    return not isinstance(content, list) or (len(content) == len(others) and all(map(same_nodes, content, others)))


@pytest.mark.slow
@pytest.mark.parametrize("overrides", TYPICAL, ids=" ".join)
def test_every_group_is_composed_as_hydra_does(overrides):
    made = compose_plainly([str(conf_dir())], [_parse(text) for text in overrides])
    assert made is not None
    assert set(overrides) & set(CHOICES) <= {f"{group}={option}" for group, option in made.options.items()}
    assert repr(made) == repr(_by_hydra([*overrides]))
    assert same_nodes(as_config(made.config), OmegaConf.create(made.config))


def test_a_study_is_left_to_hydra_in_no_part():
    parsed = [_parse("experiment=codesign_175b"), _parse("accelerator=b200")]
    assert compose_plainly([str(conf_dir())], parsed) is not None


WORDS = st.sampled_from(("a", "b", "c"))
SCALARS = st.sampled_from((None, 0, 2.5, True, "word", "${a}", "${b.c}"))
TREES = st.recursive(SCALARS | st.lists(SCALARS, max_size=2), lambda inner: st.dictionaries(WORDS, inner, max_size=3))
MAPPINGS = st.dictionaries(WORDS, TREES, max_size=3)


@given(st.tuples(MAPPINGS, MAPPINGS, MAPPINGS))
def test_mappings_are_merged_as_omegaconf_does(parts):
    before, merged, by_omegaconf = copy.deepcopy(parts), {}, OmegaConf.create()
    try:
        for part in parts:
            _merge(merged, part)
    except UnsupportedMerge:
        return
    for part in parts:
        by_omegaconf.merge_with(OmegaConf.create(part))
    assert repr(merged) == repr(OmegaConf.to_container(by_omegaconf, resolve=False))
    assert parts == before


@given(MAPPINGS)
def test_nodes_are_those_that_omegaconf_creates(tree):
    assert same_nodes(as_config(tree), OmegaConf.create(tree))
    assert not same_nodes(as_config(tree), OmegaConf.create({**tree, "d": [1]}))


@pytest.mark.parametrize(("base", "added"), [("${b}", {"c": 1}), ("${b}", [1]), (1, "???")])
def test_what_refers_elsewhere_or_lacks_a_value_is_left_to_omegaconf(base, added):
    with pytest.raises(UnsupportedMerge):
        _merge({"a": base, "b": {"d": 2}}, {"a": added})


@pytest.mark.parametrize(
    "text",
    [
        "# @package cluster.host[0]\na: 1\n",
        "hydra: {job: {chdir: true}}\n",
        "- 1\n",
        "defaults: [missing]\n",
        "defaults: [{override host: b}]\nhost: {}\n",
    ],
)
def test_an_unusual_file_is_left_to_hydra(tmp_path, text):
    (tmp_path / "config.yaml").write_text("defaults: [{part: a}]\n", encoding="utf-8")
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "a.yaml").write_text("b: {c: 1}\n", encoding="utf-8")
    assert compose_plainly([str(tmp_path)], []).config == {"part": {"b": {"c": 1}}}
    (tmp_path / "part" / "a.yaml").write_text(text, encoding="utf-8")
    assert compose_plainly([str(tmp_path)], []) is None


def test_a_file_written_anew_is_read_anew(tmp_path):
    (tmp_path / "config.yaml").write_text("a: 1\n", encoding="utf-8")
    first = compose_plainly([str(tmp_path)], [])
    first.config["a"] = 3
    assert compose_plainly([str(tmp_path)], []).config == {"a": 1}
    (tmp_path / "config.yaml").write_text("a: 1.25\n", encoding="utf-8")
    assert compose_plainly([str(tmp_path)], []).config == {"a": 1.25}
