"""A folded Clos of equal switches: tiers and switches by hand, of generated graphs, and of published clusters."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from builders import serving
from contracts.menus import built as built_file

from codesign.config import check_memory
from codesign.core.errors import ConfigError
from codesign.core.fields import check_ranges, replace
from codesign.model.metrics import evaluate
from codesign.model.networks.fabrics import Contended, FoldedClos, Group
from codesign.model.networks.topology import SwitchedTree


def ndr() -> FoldedClos:
    return built_file("scale_out", "infiniband_ndr_clos").fabric


def clos(radix: float, endpoints: float, **changes) -> FoldedClos:
    """Latency counts switches (a second each), energy cables (a joule each)."""
    numbers = {"switch_latency_s": 1.0, "cable_energy_j_per_byte": 1.0} | changes
    return FoldedClos(radix, 1.0, 0.0, endpoints=endpoints, **numbers)


@pytest.mark.parametrize(
    ("radix", "tiers", "holds"),
    [(64, 1, 64), (64, 2, 2048), (64, 3, 65_536), (144, 2, 10_368), (40, 2, 800), (48, 3, 27_648), (128, 2, 8192)],
)
def test_what_so_many_tiers_hold(radix, tiers, holds):
    """Printed for 64 ports [zhao2025insights], 144 (NVIDIA, Quantum-X800) and three tiers of 48 [alfares2008]."""
    assert float(clos(radix, holds).tiers()) == tiers
    assert float(clos(radix, holds + 1).tiers()) == tiers + 1
    assert float(clos(radix, holds).switches()) == holds * (2 * tiers - 1) / radix


@pytest.mark.parametrize(("radix", "most"), [(32, 5), (64, 4), (128, 3), (256, 2)])
def test_screening_in_single_precision_counts_the_same(radix, most):
    with jax.enable_x64(False):
        for tiers in range(1, most + 1):
            holds = 2.0 * (radix / 2) ** tiers
            assert [float(clos(radix, n).tiers()) for n in (holds * 0.999, holds, holds * 1.001)] == [
                tiers, tiers, tiers + 1
            ]  # fmt: skip


def built(radix: int, tiers: int) -> nx.Graph:
    """The whole network: a switch of tier t is named by the hosts' digits above t and t - 1 digits of its own.

    Digits count to k = radix / 2, the highest of a host to radix. A switch is joined to all of the tier above that
    have its higher digits and, before one more of their own, its own ones.
    """
    k, graph = radix // 2, nx.Graph()
    digits = [radix, *[k] * (tiers - 1)]
    for host in itertools.product(*map(range, digits)):
        graph.add_edge(("host", host), (1, host[:-1], ()))
    for tier in range(1, tiers):
        for above in itertools.product(*map(range, digits[: tiers - tier])):
            for own in itertools.product(range(k), repeat=tier - 1):
                for up in range(k):
                    graph.add_edge((tier, above, own), (tier + 1, above[:-1], (*own, up)))
    return graph


@pytest.mark.parametrize(("radix", "tiers"), [(4, 1), (4, 2), (4, 3), (4, 4), (6, 2), (6, 3), (8, 2), (8, 3)])
def test_switches_cables_and_hops_are_those_of_a_graph(radix, tiers):
    graph = built(radix, tiers)
    hosts = sorted(node for node in graph if node[0] == "host")
    switches = [node for node in graph if node[0] != "host"]
    assert all(graph.degree[node] == radix for node in switches)  # no port is left over
    fabric = clos(radix, len(hosts))
    result = {name: float(count) for name, count in fabric.counts(jnp.asarray(float(len(hosts)))).items()}
    assert result == {"switches": len(switches), "cables": graph.number_of_edges(), "tiers": tiers}
    away = nx.single_source_shortest_path_length(graph, hosts[0])
    for span in range(2, len(hosts) + 1):  # the group of the first `span` hosts
        cables = max(away[host] for host in hosts[:span])
        link = fabric.link(Group(float(span)))
        assert (float(link.energy_j_per_byte), float(link.alpha_s)) == (cables, cables - 1)


def test_half_of_the_hosts_reach_the_other_half_at_full_rate():
    graph = built(4, 3)
    hosts = sorted(node for node in graph if node[0] == "host")
    flow = nx.DiGraph()
    flow.add_edges_from(nx.DiGraph(graph).edges, capacity=1.0)
    flow.add_edges_from(("source", host) for host in hosts[: len(hosts) // 2])
    flow.add_edges_from((host, "sink") for host in hosts[len(hosts) // 2 :])
    assert nx.maximum_flow_value(flow, "source", "sink") == len(hosts) // 2


def test_two_tiers_are_the_fat_tree_of_the_topologies():
    graph = SwitchedTree(leaves=16, per_leaf=8, spines=8).graph()
    fabric = clos(16, 128)
    assert float(fabric.switches()) == sum("node" not in name for name in graph)
    hops = nx.shortest_path_length(graph, "node 0")
    for last, size in ((7, 8.0), (8, 9.0), (127, 128.0)):
        assert float(fabric.link(Group(size)).energy_j_per_byte) == hops[f"node {last}"]


@pytest.mark.parametrize(("endpoints", "switches"), [(1, 1), (5, 1), (9, 3 + 2), (20, 5 + 3), (33, 2 * 9 + 5)])
def test_switches_are_bought_whole(endpoints, switches):
    """Eight ports: leaves of four, tops joining eight leaves' ports; one switch, two and three tiers."""
    fabric = clos(8, endpoints, port_usd_per_bytes_per_s=1.0)
    assert float(fabric.switches()) == switches
    assert float(fabric.capex_usd()) * endpoints == pytest.approx(8 * switches)


# Network cost a GPU without its card, [cluster_cost_2024]; eight rails of 64-port switches.
@pytest.mark.parametrize(("gpus", "tiers", "usd"), [(512, 1, 1882.5), (1024, 2, 4247.5), (32_768, 3, 6612.5)])
def test_the_price_a_gpu_follows_the_published_sheet(gpus, tiers, usd):
    """Ports and cables are taken from the middle row; the tiers explain the others."""
    fabric = ndr().joining(jnp.asarray(float(gpus)))
    card = float(fabric.card_usd_per_bytes_per_s * fabric.bandwidth_bytes_per_s)
    assert float(fabric.tiers()) == tiers
    assert float(fabric.capex_usd()) - card == pytest.approx(usd, rel=0.025)


# [zhao2025insights]: network, endpoints, rails, switches, switch-to-switch links, thousand USD an endpoint.
@pytest.mark.parametrize(
    ("endpoints", "rails", "switches", "links", "kusd"),
    [(16_384, 8.0, 768, 16_384, 4.39), (65_536, 1.0, 5120, 131_072, 7.5)],
)
def test_counts_of_a_published_comparison(endpoints, rails, switches, links, kusd):
    fabric = replace(ndr(), {"rails": rails}).joining(jnp.asarray(float(endpoints)))
    result = fabric.counts(jnp.asarray(float(endpoints)))
    assert (float(result["switches"]), float(result["cables"]) - endpoints) == (switches, links)
    card = float(fabric.card_usd_per_bytes_per_s * fabric.bandwidth_bytes_per_s)
    assert float(fabric.capex_usd()) - card == pytest.approx(1e3 * kusd, rel=0.15)  # other prices: 3 and 11 % apart


def test_the_files_of_one_network_agree_at_a_thousand_devices():
    """infiniband_ndr states for two tiers what this derives from parts."""
    flat, tree = built_file("scale_out", "infiniband_ndr").fabric, ndr().joining(jnp.asarray(1024.0))
    assert float(tree.capex_usd()) == pytest.approx(float(flat.capex_usd()), rel=1e-3)
    assert float(tree.static_power_w()) == pytest.approx(float(flat.static_power_w()), rel=1e-3)
    for group in (Group(32.0, 8.0), Group(128.0, 8.0)):
        one, other = flat.link(group), tree.link(group)
        assert float(one.alpha_s) == pytest.approx(float(other.alpha_s))
        assert float(one.beta_s_per_byte) == float(other.beta_s_per_byte)


def test_rails_shorten_the_way_of_aligned_groups():
    one, eight = clos(64, 2048), clos(64, 2048, rails=8.0)
    aligned = Group(32.0, 8.0)
    assert [float(fabric.link(aligned).alpha_s) for fabric in (one, eight)] == [3, 1]
    assert (float(eight.switches()), float(one.switches())) == (96, 96)  # 8 planes of 256


def test_wide_ports_are_few_ports():
    fabric = replace(ndr(), {"radix": 128.0, "bandwidth_bytes_per_s": 25e9})
    assert float(ndr().limits()["switch"]) == float(fabric.limits()["switch"]) == pytest.approx(1.0, rel=2e-3)
    assert float(replace(ndr(), {"radix": 128.0}).limits()["switch"]) == pytest.approx(2.0, rel=2e-3)


def outermost(fabric):
    scenario = serving()
    level = dataclasses.replace(scenario.cluster.network["scale_out"], fabric=fabric)
    network = scenario.cluster.network | {"scale_out": level}
    return dataclasses.replace(scenario, cluster=dataclasses.replace(scenario.cluster, network=network))


@pytest.mark.slow
def test_the_network_grows_with_the_devices_that_the_plan_asks_for():
    scenario = outermost(Contended(replace(ndr(), {"rails": 1.0}), background_bytes_per_s=1e9))
    counts = []
    for devices in (64.0, 128.0, 4096.0):
        metrics = evaluate(replace(scenario, {"cluster.device_count": devices}))
        counts.append([float(metrics.get(f"count.scale_out.{part}")) for part in ("tiers", "switches", "cables")])
    assert counts == [[1, 1, 64], [2, 6, 256], [3, 2 * 128 + 64, 12_288]]
    roomy = replace(scenario, {"cluster.network.scale_out.fabric.inner.endpoints": 2048.0})
    assert float(evaluate(roomy).get("count.scale_out.switches")) == 96


def test_as_an_inner_level_it_ends_where_it_ends():
    fabric = clos(64, 256.0)
    assert float(fabric.reach()) == 256
    assert {name: float(n) for name, n in fabric.counts(jnp.asarray(1024.0)).items()} == {
        "switches": 4 * (8 + 4), "cables": 4 * 512, "tiers": 2
    }  # fmt: skip


def test_slopes_agree_with_finite_differences():
    """Of price, power and link by every number that may vary between whole designs."""
    names = [f.name for f in dataclasses.fields(FoldedClos) if f.name not in ("radix", "rails", "endpoints")]
    fabric = ndr().joining(jnp.asarray(5000.0))
    start = jnp.log(jnp.array([float(getattr(fabric, name)) for name in names]))

    def outputs(logs):
        made = replace(fabric, dict(zip(names, jnp.exp(logs), strict=True)))
        link = made.link(Group(100.0, 8.0))
        return jnp.log(jnp.stack([
            made.capex_usd(), made.static_power_w(), made.limits()["switch"], link.alpha_s, link.beta_s_per_byte,
            link.energy_j_per_byte,
        ]))  # fmt: skip

    steps = 1e-5 * np.eye(len(names))
    up, down = np.split(np.asarray(jax.jit(jax.vmap(outputs))(start + np.concatenate([steps, -steps]))), 2)
    np.testing.assert_allclose(jax.jit(jax.jacrev(outputs))(start), (up - down).T / 2e-5, atol=1e-8)
    assert (np.abs(up - down).sum(axis=1) > 1e-7).all()  # each of them matters


@pytest.mark.parametrize(("key", "value"), [("radix", 2), ("rails", 0), ("endpoints", 0.5)])
def test_impossible_numbers_are_refused_in_a_line(key, value):
    with pytest.raises(ConfigError, match=rf"{key} = {value:g} is outside"):
        check_ranges(replace(ndr(), {key: float(value)}))


def test_a_switch_that_carries_more_than_it_can_is_refused_in_a_line():
    scenario = outermost(replace(ndr(), {"radix": 128.0}))
    with pytest.raises(ConfigError, match=r"200% of cluster.network.scale_out, switch, is used"):
        check_memory(scenario)
