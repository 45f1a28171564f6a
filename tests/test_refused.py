"""What cannot run, or counts what is not whole, is refused in one line: key, value, what is allowed, what helps."""

import functools
import json
import sys
from pathlib import Path

import jax.numpy as jnp
import networkx as nx
import pytest

from codesign.commands.cli import main
from codesign.config import scenario_from_config, study_from_config
from codesign.config.checks import check_outcome
from codesign.config.consistency import check_boxes
from codesign.core.errors import ConfigError
from codesign.core.json_yaml import not_decimal, read_yaml, write_yaml
from codesign.core.untrusted_io import tree_of_yaml
from codesign.model.networks.fabrics import Group, QueuedNode, SwitchDomain
from codesign.model.networks.topology import from_networkx
from codesign.model.networks.topology.files import read_topology
from codesign.model.workloads import from_config_json
from codesign.model.workloads.daily_load import read_load
from codesign.simulation.serving import read_trace

ROOT = Path(__file__).resolve().parent.parent
SMALL = "calibration=h100_sxm_roofline"
SERVED = (SMALL, "model=llama31_8b", "workload=static_batch", "plan.tp=1")
POOLS = ("experiment=disaggregation", "plan.prefill_devices=8")
UP = "cluster.network.scale_up.fabric.background_bytes_per_s"


def refused(*overrides: str, whole: bool = False) -> str:
    """The line with which a design, or a study, is refused."""
    build = study_from_config if whole else scenario_from_config
    with pytest.raises(ConfigError) as error:
        build(*overrides)
    return str(error.value)


def line(capsys, *arguments: str) -> str:
    """The one line with which a command is refused; nothing else is printed."""
    assert main(list(arguments)) == 2
    out, error = capsys.readouterr()
    assert not out
    assert error.count("\n") == 1, error
    return error


class TestWholeNumbers:
    """Of plans, of lists of plans, of models and machines."""

    @pytest.mark.parametrize(
        ("override", "said"),
        [
            ("plan.tp=8.0000001", "plan.tp = 8.0000001 is not a whole number; take 8 or 9"),
            ("plan.zero=1.5", "plan.zero = 1.5 is not a whole number; take 1 or 2"),
            ("plan.zero=2.5", "take 2 or 3"),
            ("plan.recompute=1.5", "plan.recompute = 1.5 is not a whole number; take none or selective or full"),
            ("plan.recompute=[1]", "plan.recompute = a list is not a plain number"),
            ("plan.recompute=true", "plan.recompute = true is not a plain number"),
            ("plan.sequence_parallel=0.5", "plan.sequence_parallel = 0.5 is not a whole number; take 0 or 1"),
            ("plan.micro_batch=1.5", "plan.micro_batch = 1.5 is not a whole number"),
            ("cluster.device_count=1000.5", "cluster.device_count = 1000.5 is not a whole number; take 1000 or 1001"),
            ("cluster.network.scale_up.fabric.endpoints=7.5", "endpoints = 7.5 is not a whole number"),
            ("model.layers=95.5", "workload.model.layers = 95.5 is not a whole number"),
            ("workload.global_batch=1000.5", "workload.global_batch = 1000.5 is not a whole number"),
            ("cluster.accelerator.peak_flops_per_s.fp8=true", "peak_flops_per_s.fp8 = true is not a plain number"),
            ("seed=null", "seed = null is not a whole number from 0 on, below 2^63; the usual one is seed=0"),
            ("seed=1.5", "seed = 1.5 is not a whole number"),
            ("seed=[1]", "seed = [1] is not a whole number"),
            ("name=null", "name = null is not a word"),
        ],
    )
    def test_of_one_design(self, override, said):
        assert said in refused(SMALL, override)

    @pytest.mark.parametrize(
        ("override", "said"),
        [
            ("space.plan.recompute=[1.5]", "space.plan.recompute = 1.5 is not a whole number; take none or selective"),
            ("space.plan.zero=[0.5]", "space.plan.zero = 0.5 is not a whole number; take 0 or 1"),
            ("space.plan.tp=[8.5]", "space.plan.tp = 8.5 is not a whole number; take 8 or 9"),
            ("space.plan.tp=[true]", "space.plan.tp: True is not a number"),
            ("space.plan.tp=[8,4,8]", "space.plan.tp lists 8 twice; list each value once"),
            ("space.plan.recompute=[none,0]", "space.plan.recompute lists none twice"),
            ("runner=local workers=0", "runner.workers = 0 must be at least 1; leave it out for one a processor"),
            ("runner=local workers=1.5", "runner.workers must be a whole number"),
            ("seed=null", "seed = null is not a whole number"),
        ],
    )
    def test_of_a_study(self, override, said):
        assert said in refused(SMALL, *override.split(), whole=True)

    def test_a_share_of_a_thing_that_is_shared_is_taken(self):
        assert float(scenario_from_config(SMALL, "plan.dp_overlap=0.5").plan.dp_overlap) == 0.5

    def test_one_a_processor_is_what_no_number_says(self):
        assert study_from_config(SMALL, "runner=local").resolved["runner"]["workers"] is None

    def test_the_command_prints_it_and_nothing_else(self, capsys):
        assert "take 8 or 9" in line(capsys, "evaluate", SMALL, "plan.tp=8.0000001")


class TestConsistency:
    """Levels and networks, experts of a token, devices in boxes."""

    @pytest.mark.parametrize(
        ("override", "said"),
        [
            (
                "cluster.levels=[scale_out]",
                "leaves out scale_up of cluster.network, which would carry and",
            ),
            ("cluster.levels=[scale_up,scale_out,scale_out]", "names scale_out twice"),
            ("cluster.levels=scale_up", "cluster.levels must be a list, not str 'scale_up'"),
            ("cluster.placement=[a]", "placement = ('a',) must map mesh axes to network levels"),
        ],
    )
    def test_levels(self, override, said):
        assert said in refused(SMALL, override)

    def test_a_network_that_is_deleted_may_be_left_out(self):
        scenario = scenario_from_config(SMALL, "cluster.levels=[scale_out]", "~cluster.network.scale_up")
        assert scenario.cluster.levels == ("scale_out",)

    def test_more_experts_of_a_token_than_there_are(self):
        said = refused(SMALL, "model=mixtral_8x7b", "model.feed_forward.top_k=9")
        assert "top_k = 9 experts of a token are more than the 8" in said
        assert said.endswith("take 8 or fewer")

    def test_a_plan_chooses_them_too(self):
        chosen = ("plan=shaped", "+plan.experts=4", "+plan.top_k=5")
        assert "are more than the 4" in refused(SMALL, "model=mixtral_8x7b", *chosen)

    def test_devices_fill_boxes(self):
        with pytest.raises(ConfigError, match=r"device_count = 1001 does not fill boxes of 8 .*take 1000 or 1008"):
            check_boxes(scenario_from_config(*SERVED, "cluster.device_count=1001"))

    def test_a_pool_for_prompts_fills_them_too(self):
        with pytest.raises(ConfigError, match=r"plan.prefill_devices = 12 does not fill boxes .* take 8 or 16"):
            check_boxes(scenario_from_config("experiment=disaggregation", "plan.prefill_devices=12"))

    @pytest.mark.parametrize("count", [1, 7, 8, 1000])
    def test_one_box_may_be_used_in_part(self, count):
        check_boxes(scenario_from_config(*SERVED, f"cluster.device_count={count}"))

    def test_racks_and_pods_may_be_used_in_part(self):
        check_boxes(scenario_from_config("accelerator=gb200", "model=llama31_8b", "cluster.device_count=100"))


class TestRunning:
    """Designs that use more of something than there is."""

    @functools.cached_property
    def numbers(self):
        return {"time_s": 1.0, "usage.hbm": 1.0 + 5e-8, "capex_usd": 2.0}

    def test_a_pool_for_prompts_that_does_not_fit(self, capsys):
        said = line(capsys, "evaluate", *POOLS)
        assert "cluster.prefill.cluster.accelerator.hbm lacks" in said
        assert "smallest change that fits: plan.prefill_tp=4" in said

    def test_the_change_that_is_named_fits(self):
        from codesign.config import check_memory

        check_memory(scenario_from_config(*POOLS, "plan.prefill_tp=4"))

    @pytest.mark.parametrize(
        ("number", "said"),
        [
            ({"usage.scale_up.edge": 1.2}, "usage.scale_up.edge = 1.2: 120% of edge of cluster.network.scale_up"),
            ({"usage.spares": float("nan")}, "usage.spares = nan: unknown of spares would be used"),
            ({"time_s": float("inf")}, "the design has no time_s: it is inf"),
            ({"capex_usd": -1.0}, "the design has no capex_usd: it is -1"),
            ({"usage.scale_up.background": 2.0}, f"{UP} = 4.5e+10: others take 1.9 of the rate of links"),
        ],
    )
    def test_whatever_is_used_beyond_what_there_is(self, number, said):
        scenario = scenario_from_config(SMALL, "fabric=nvlink4_queued")
        with pytest.raises(ConfigError) as error:
            check_outcome(scenario, self.numbers | number)
        assert said in str(error.value)

    def test_what_keeps_the_tolerance_of_every_search_is_taken(self):
        check_outcome(scenario_from_config(SMALL), self.numbers)

    @pytest.mark.slow
    def test_a_node_beyond_saturation(self, capsys):
        said = line(capsys, "evaluate", "experiment=busy_node", f"{UP}=500e9")
        assert f"{UP} = 5e+11: others take 2 of the rate" in said
        assert "allowed: at most 0.95" in said

    def test_what_others_take_is_the_share_that_slows_a_link_down(self):
        node, group = QueuedNode(SwitchDomain.example(), 90e9, 0.2), Group(8.0)
        link, alone = node.link(group), node.inner.link(group)
        assert float(link.beta_s_per_byte / alone.beta_s_per_byte) == pytest.approx(
            1 / (1 - float(node.taken_ratio(group)))
        )

    @pytest.mark.slow
    @pytest.mark.parametrize("variant", ["hosts", "contended", "queued"])
    def test_no_variant_of_a_network_makes_a_send_faster(self, variant):
        plain, other = (
            scenario_from_config(SMALL, f"scale_out=infiniband_ndr{name}").cluster.network["scale_out"]
            for name in ("", f"_{variant}")
        )
        for nbytes in (1.0, 1e3, 1e5, 1e7, 1e9):
            group = Group(jnp.asarray(2.0), jnp.asarray(8.0))
            seconds = [
                float(level.collectives.send.cost(jnp.asarray(nbytes), group, level.fabric.link(group)).time_s)
                for level in (plain, other)
            ]
            assert seconds[1] >= seconds[0] * (1 - 1e-12)


class TestFiles:
    """YAML, topologies, models of a hub, traces and loads."""

    @pytest.mark.parametrize("text", ["1:30:00", "1:30.5", "-1:30", "010", "00"])
    def test_base_60_and_8(self, text):
        assert not_decimal(f"a: 1\nb: {text}\n") == (text, 2)
        assert read_yaml(f"b: {text}") == {"b": text}
        with pytest.raises(ConfigError, match=r"line 2: .* is no decimal number .* write the number itself"):
            tree_of_yaml(f"a: 1\nb: {text}\n", "file")
        assert tree_of_yaml(write_yaml({"b": text}), "file") == {"b": text}

    @pytest.mark.parametrize(("text", "value"), [("10", 10), ("0", 0), ("0.5", 0.5), ("0x10", 16), ("1.0e+9", 1e9)])
    def test_decimal_numbers_are_as_ever(self, text, value):
        assert tree_of_yaml(f"b: {text}\nat: 'x:10:30'", "file")["b"] == value

    def test_a_key_that_stands_twice(self):
        with pytest.raises(ConfigError, match="key 'b' stands there twice"):
            tree_of_yaml("a: 1\nb: 2\nb: 3", "file")

    @pytest.mark.parametrize("value", ["0", "abc"])
    def test_a_value_where_a_pool_stands(self, value, capsys):
        said = line(capsys, "evaluate", "experiment=disaggregation", f"cluster.prefill={value}")
        assert "cluster.prefill must be codesign.model.scenario.PrefillPool or null, not" in said

    def test_an_own_file(self, tmp_path, capsys):
        (tmp_path / "plan").mkdir()
        (tmp_path / "plan" / "mine.yaml").write_text(
            "_target_: codesign.model.workloads.Plan\ntp: 1:30\n", encoding="utf-8"
        )
        said = line(capsys, "evaluate", "--conf", str(tmp_path), SMALL, "plan=mine")
        assert "mine.yaml, line 2: 1:30 is no decimal number" in said

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("endpoints: [a, a, b]\nedges: [{from: a, to: b, bandwidth_bytes_per_s: 1.0e+9}]", "endpoints has a twice"),
            ("endpoints: [a, b]\nedges: [{from: a, to: b, bandwidth_bytes_per_s: 1:30:00}]", "is no decimal number"),
            ("endpoints: [a, b]\nswitches: [s, s]\nedges: []", "switches has s twice"),
            ("endpoints: [a, b]\nedges: [{from: a, to: b, one_way: 1}]", "one_way = 1; allowed: true or false"),
            ("endpoints: [a, b]\nedges: []\nforwards: 2", "forwards = 2; allowed: true or false"),
        ],
    )
    def test_a_topology_file(self, tmp_path, text, said):
        path = tmp_path / "rack.yaml"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError) as error:
            read_topology(path)
        assert said in str(error.value)

    @pytest.mark.parametrize(
        ("numbers", "said"),
        [
            ((0, 0, 7), "1: endpoint = 0 is that of 0 too; allowed: the numbers 0 to 2, each once"),
            ((0, 1, 7), "2: endpoint = 7 comes where 2 should"),
            ((1, 2, 3), "0: endpoint = 1 comes where 0 should"),
        ],
    )
    def test_device_numbers(self, numbers, said):
        graph = nx.complete_graph(3)
        nx.set_node_attributes(graph, dict(enumerate(numbers)), "endpoint")
        nx.set_edge_attributes(graph, 1e9, "bandwidth_bytes_per_s")
        with pytest.raises(ConfigError) as error:
            from_networkx(graph, "rack")
        assert said in str(error.value)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"model_type": [1]}, "model_type = [1] is not a word"),
            ({"num_experts_per_tok": 9}, "a token cannot visit 9 of 8 experts"),
            ({"max_position_embeddings": "long"}, "max_position_embeddings = 'long' is not a whole number"),
            ({"sliding_window": 512, "use_sliding_window": 3}, "use_sliding_window = 3 is not true or false"),
            ({"sliding_window": 512, "sliding_window_pattern": 0.5}, "sliding_window_pattern = 0.5 is not a whole"),
            ({"attention_chunk_size": 512, "no_rope_layers": 3}, "no_rope_layers = 3 is not a list"),
        ],
    )
    def test_a_model_of_a_hub(self, tmp_path, changes, said):
        config = {
            "architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 4,
            "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "intermediate_size": 14336,
            "num_local_experts": 8, "num_experts_per_tok": 2,
        }  # fmt: skip
        (tmp_path / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")
        with pytest.raises(ConfigError) as error:
            from_config_json(tmp_path)
        assert said in str(error.value)

    @pytest.mark.parametrize(
        ("rows", "said"),
        [
            ("-5,100,20\n1,100,20", "line 2: arrival_s = -5 is before 0"),
            ("0,100.5,20\n1,100,20", "line 2: input_tokens = 100.5 is not a whole number of tokens; take 100 or 101"),
            ("0,100,20\n1,100,7.25", "line 3: output_tokens = 7.25 is not a whole number of tokens"),
            ("0,100,20\n1e-30,100,20", "1e+30 requests/s; allowed: at most 1e+12"),
        ],
    )
    def test_a_trace(self, tmp_path, rows, said):
        path = tmp_path / "requests.csv"
        path.write_text(f"arrival_s,input_tokens,output_tokens\n{rows}\n", encoding="utf-8")
        with pytest.raises(ConfigError) as error:
            read_trace(path)
        assert said in str(error.value)

    def test_a_load(self, tmp_path):
        (tmp_path / "load.yaml").write_text("[1, 1.0e+30]", encoding="utf-8")
        with pytest.raises(ConfigError, match=r"hour 1: requests_per_s = 1e\+30 is more than 1e\+12"):
            read_load(tmp_path / "load.yaml")
        (tmp_path / "load.yaml").write_text("[1, 1:30:00]", encoding="utf-8")
        with pytest.raises(ConfigError, match="1:30:00 is no decimal number"):
            read_load(tmp_path / "load.yaml")


@pytest.mark.slow
def test_a_hundred_malformed_lines_and_files(tmp_path, monkeypatch):
    """`python qa/malformed.py` tries thousands."""
    monkeypatch.syspath_prepend(str(ROOT / "qa"))
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("malformed", None)
    import malformed  # pyright: ignore[reportMissingImports]

    tally = malformed.run(100, 11, tmp_path, ("training",), quiet=True)
    assert not tally.findings
    assert tally.ends["refused"] > 80
