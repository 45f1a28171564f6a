"""A design on a routed topology: which cable limits it, as frame, sentence and picture; and the FabreX outcomes."""

import ast
import dataclasses
import importlib
import inspect
import json

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from builders import rings, training
from example_run import write_run

from codesign.core.errors import ConfigError
from codesign.evidence.reproduction import available, experiments_folder, load
from codesign.model.hardware import Channel, Packets, measured_path
from codesign.model.networks.collectives import NetworkLevel
from codesign.model.networks.fabrics import Contended, RoutedTopology
from codesign.model.networks.topology import Crossbar, RailCluster, Torus, all_flows, link_columns, route
from codesign.model.networks.topology import load as load_of
from codesign.model.workloads import Plan
from codesign.report import build, build_report
from codesign.report.findings import links_frame, topology_figure
from codesign.search.results import busy_links

OPS = pd.DataFrame({"axis": ["tp", "data", None], "total_s": [1.0, 3.0, 9.0], "repeats": [2.0, 1.0, 1.0]})


def scenario():
    """16 nodes of 8: NVLink inside, a rail-optimised graph with a narrow core beyond, tenants on top."""
    links = {"nvlink": Channel(450e9), "rail": Packets(400e9), "spine": Packets(400e9)}
    rails = RoutedTopology(RailCluster(16, 8, 8, spines=4, blocking=4.0), links)
    made = training(128.0, Plan(tp=8.0, pp=1.0))
    network = {
        "scale_up": NetworkLevel(RoutedTopology(Crossbar(8), {"port": Channel(450e9)}), rings()),
        "scale_out": NetworkLevel(Contended(rails, 1e9), rings()),
    }
    return dataclasses.replace(made, cluster=dataclasses.replace(made.cluster, network=network))


def test_links_of_every_group_on_every_routed_level():
    links, cables = busy_links(scenario(), OPS)
    assert list(cables) == ["scale_out: data", "scale_up: tp"]  # the axis with most seconds first
    assert set(links["level"]) == {"scale_up", "scale_out"}
    full = links[links["used"] > 0.999]
    assert set(full[full["level"] == "scale_out"]["kind"]) == {"spine"}
    assert "twice the spine gives" in cables["scale_out: data"]
    assert links[links["level"] == "scale_out"]["price"].sum() == pytest.approx(1.0)
    nothing, silent = busy_links(training(), OPS)
    assert nothing.empty
    assert silent == {}


@pytest.mark.slow
def test_the_report_draws_the_topology(tmp_path):
    folder = write_run(tmp_path / "run")
    links, cables = busy_links(scenario(), OPS)
    links.to_parquet(folder / "links.parquet")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    (folder / "summary.json").write_text(json.dumps(summary | {"cables": cables}), encoding="utf-8")
    text = build_report(folder).read_text(encoding="utf-8")
    assert "<h2>Topology</h2>" in text
    assert "scale_out: data: 16 devices, 8 apart" in text
    assert (folder / "figures" / "topology_load.png").stat().st_size > 10_000


@pytest.mark.parametrize("shape", [Torus((4, 5)), Crossbar(6)])
def test_nodes_are_drawn_apart(shape):
    topology = shape.build()
    columns = link_columns(topology, load_of(route(topology), all_flows(topology, topology.size, 1)))
    places = set(zip(columns["x0"].round(9), columns["y0"].round(9), strict=True))
    assert len(places) == len(topology.nodes)
    assert columns["used"].max() == pytest.approx(1.0)
    frame = links_frame(topology, load_of(route(topology), all_flows(topology, topology.size, 1)))
    assert len(topology_figure({"one": frame, "other": frame}).axes) == 3  # two graphs and a scale


EXPERIMENTS = ("fabrex_topologies", "fabrex_rings", "fabrex_neox", "intranode_pcie")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_bars_of_the_documents_are_met(name):
    rows = [claim.row() for claim in load(available()[name]).claims()]
    assert [row["claim"] for row in rows if row["ok"] is False] == []
    assert sum(row["ok"] is True for row in rows) >= 4


def test_shipped_constants_are_those_of_the_fit():
    experiment = load(available()["intranode_pcie"])
    sizes = jnp.asarray(experiment.sizes())
    for test, fitted in experiment.models().items():
        np.testing.assert_allclose(measured_path(test).time_s(sizes), fitted.time_s(sizes), rtol=1e-3)
    with pytest.raises(ConfigError, match="did you mean 'ib_write'"):
        measured_path("ib_wirte")


@pytest.mark.slow
def test_tensor_parallelism_over_both_boxes_misses_only_with_the_graphs_own_rates():
    rows = [claim.row() for claim in load(experiments_folder() / "fabrex_405b").claims()]
    missed = [row for row in rows if row["ok"] is False]
    assert [row["claim"] for row in missed] == ["16 accelerators with the graphs' own rates: largest error"]
    assert missed[0]["error"] < 0.065


def test_every_picture_of_a_report_is_drawn_by_a_function_that_is_there():
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(build))) if isinstance(node, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Picture"]
    assert len(named) > 8
    for call in named:
        name, _, module = (argument.value for argument in call.args[:3] if isinstance(argument, ast.Constant))
        assert callable(getattr(importlib.import_module(f"codesign.report.{module}"), name)), (module, name)
