"""Graphs, routes, rings and programmes: against counting, another solver, and packets on links."""

import itertools
import json
from collections import Counter

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from ring_simulation import all_gather_s
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import maximum_flow

from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import check_ranges, get_path, replace, walk
from codesign.core.smooth import PNorm, reading
from codesign.model.hardware import Channel, Pcie
from codesign.model.networks.fabrics import Group, RoutedTopology, seconds_per_byte, topology_from_file
from codesign.model.networks.topology import (
    Cable,
    CircuitSwitch,
    Crossbar,
    Dragonfly,
    PcieBoxes,
    RailCluster,
    SwitchedTree,
    Torus,
    all_flows,
    best_rates,
    crossings,
    equal_rate,
    from_networkx,
    full_links,
    gains,
    limit,
    load,
    load_by_ring,
    read_topology,
    ring_orders,
    route,
)
from codesign.model.networks.topology.routing import exchange_flows, hub_cycles, tree_flows, zigzag_paths

B = 26.28e9
FABREX = {
    "1s-1rp-std-cascade": (PcieBoxes(uplinks=2, domains=1), 2),
    "1s-2rp-std-cascade": (PcieBoxes(uplinks=2, domains=2), 1),
    "1s-2rp-split-cascade": (PcieBoxes(uplinks=2, domains=2, split=True), 2),
    "2s-2rp-std-flat": (PcieBoxes(uplinks=4, domains=2, switches=2), 1),
    "2s-2rp-split-flat": (PcieBoxes(uplinks=4, domains=2, switches=2, split=True), 4),
}
CABLES = {"xgmi": Cable(64e9, 1e-6), **{kind: Cable(B, 2e-7) for kind in ("port", "cascade", "uplink", "root")}}
SHAPES = [
    PcieBoxes(),
    Crossbar(12),
    Crossbar(6, planes=3),
    SwitchedTree(),
    SwitchedTree(4, 6, 2),
    RailCluster(),
    Torus((4, 4)),
    Torus((2, 3, 4)),
    Dragonfly(),
    Dragonfly(5, 4, 2, 1),
    CircuitSwitch(6),
    CircuitSwitch(6, circuits="all"),
]
ids = lambda shape: shape.label()  # noqa: E731


@pytest.mark.parametrize("shape", SHAPES, ids=ids)
def test_every_pair_is_routed_on_a_shortest_way(shape):
    """Against networkx, which for a switched topology is told that endpoints are no way through."""
    topology = shape.build()
    routes, graph = route(topology), shape.graph()
    ends = [topology.nodes[node] for node in topology.endpoints]
    for a in range(0, topology.size, 3):
        seen = graph
        if not topology.forwards:
            seen = graph.copy()
            seen.remove_edges_from([(u, v) for u, v in graph.edges if u in ends and u != ends[a]])
        hops = nx.single_source_shortest_path_length(seen, ends[a])
        for b in range(topology.size):
            path = routes.path(a, b)
            assert len(path) == hops[ends[b]]
            assert all(topology.target[x] == topology.source[y] for x, y in itertools.pairwise(path))


@pytest.mark.parametrize("count", range(2, 13))
def test_rings_of_a_mesh_use_every_directed_pair_equally(count):
    for sequences, closed in ((zigzag_paths(count), False), (hub_cycles(count), True)):
        assert all(sorted(sequence) == list(range(count)) for sequence in sequences)
        after = np.roll(sequences, -1, axis=1) if closed else sequences[:, 1:]
        before = sequences if closed else sequences[:, :-1]
        uses = Counter(zip(before.ravel().tolist(), after.ravel().tolist(), strict=True))
        assert len(uses) == count * (count - 1)
        assert len(set(uses.values())) == 1


@pytest.mark.parametrize("name", FABREX)
def test_programme_and_maximum_flow_count_the_same_crossings(name):
    shape, stated = FABREX[name]
    topology = shape.build(CABLES)
    result = crossings(topology, np.arange(8), np.arange(8, 16))
    assert result.rate / B == pytest.approx(stated)
    assert _whole_crossings(shape) == stated
    assert result.price @ topology.bandwidth_bytes_per_s == pytest.approx(result.rate)  # strong duality
    assert shape.connections() <= 6  # what the top switch of the document has


def _whole_crossings(shape) -> int:
    """Edge-disjoint ways between the boxes by the combinatorial solver; mesh links inside a box do not limit."""
    topology = shape.build()
    count = len(topology.nodes)
    mesh = topology.kind == topology.kinds.index("xgmi")
    capacity = np.where(mesh, 1000, 1)
    source = np.append(topology.source, [count] * 8 + list(topology.endpoints[8:]))
    target = np.append(topology.target, [*topology.endpoints[:8], *[count + 1] * 8])
    capacity = np.append(capacity, [1000] * 16).astype(np.int32)
    return maximum_flow(coo_matrix((capacity, (source, target)), [count + 2] * 2).tocsr(), count, count + 1).flow_value


@pytest.mark.parametrize("name", FABREX)
def test_rings_reach_what_the_crossings_allow(name):
    shape, stated = FABREX[name]
    topology = shape.build(CABLES)
    rings = load_by_ring(route(topology), ring_orders(topology, np.arange(16)))
    best = best_rates(rings, topology.bandwidth_bytes_per_s)
    assert best.rate / B == pytest.approx(stated)
    assert equal_rate(rings.mean(axis=1), topology.bandwidth_bytes_per_s) == pytest.approx(best.rate)
    assert best.price @ topology.bandwidth_bytes_per_s == pytest.approx(best.rate)


@pytest.mark.parametrize("name", FABREX)
def test_bus_bandwidth_of_packets_on_links(name):
    """The formula's rate is that of an executed schedule, short of what filling the pipeline takes."""
    topology = FABREX[name][0].build(CABLES)
    routes = route(topology)
    orders = ring_orders(topology, np.arange(16))
    rate = equal_rate(load(routes, all_flows(topology, 16, 1)), topology.bandwidth_bytes_per_s)
    shard = 8e6
    seconds = all_gather_s(routes, orders, shard, packets=6)
    assert 15 * shard / seconds == pytest.approx(rate, rel=0.06)
    assert 15 * shard / seconds < rate * (1 + 1e-9)


@pytest.mark.parametrize("boxes", [2, 3])
@pytest.mark.parametrize(
    "wiring", [dict(uplinks=2), dict(uplinks=4), dict(uplinks=2, domains=2), dict(uplinks=4, domains=2, split=True)]
)
def test_rings_of_boxes_without_a_mesh_take_a_whole_cable(wiring, boxes):
    """One port an accelerator is the maximum flow into it, and packets on links reach that rate."""
    wiring = wiring | ({"domains": boxes} if wiring.get("domains") and not wiring.get("split") else {})
    topology = PcieBoxes(boxes=boxes, mesh=False, **wiring).build()
    routes, everyone = route(topology), np.arange(topology.size)
    orders = ring_orders(topology, everyone)
    rate = equal_rate(load(routes, all_flows(topology, topology.size, 1)), topology.bandwidth_bytes_per_s)
    into_one = crossings(topology, everyone[1:], everyone[:1]).rate
    assert rate == pytest.approx(into_one) == pytest.approx(1.0)
    seconds = all_gather_s(routes, orders, 64.0, 64)
    assert (topology.size - 1) * 64.0 / seconds == pytest.approx(rate, rel=0.05)


def test_a_box_with_a_switch_inside_keeps_its_rings_on_all_rails():
    topology = RailCluster(nodes=4, pod_nodes=4).build()
    assert len(ring_orders(topology, np.arange(topology.size))) == 8


def test_the_dual_price_is_the_slope_of_the_best_rate():
    topology = FABREX["2s-2rp-std-flat"][0].build(CABLES)
    rings = load_by_ring(route(topology), ring_orders(topology, np.arange(16)))
    best = best_rates(rings, topology.bandwidth_bytes_per_s)
    for edge in np.flatnonzero(best.price)[:2]:
        narrower = topology.bandwidth_bytes_per_s.copy()
        narrower[edge] *= 0.99  # full links in series have a price only downwards
        fall = best.rate - best_rates(rings, narrower).rate
        assert fall >= best.price[edge] * 0.01 * topology.bandwidth_bytes_per_s[edge] * (1 - 1e-6)


def test_it_says_which_cable_limits_the_job():
    topology = FABREX["2s-2rp-std-flat"][0].build(CABLES)
    on_link = load(route(topology), all_flows(topology, 16, 1))
    text = limit(topology, on_link)
    assert "26.28 GB/s" in text
    assert "root complex" in text
    assert {topology.kinds[topology.kind[edge]] for edge in full_links(topology, on_link)} == {"root"}
    assert gains(topology, on_link)["root"] == pytest.approx(2.0)
    assert gains(topology, on_link)["uplink"] == pytest.approx(1.0)


def test_d_mod_k_gives_each_way_down_to_one_destination():
    topology = SwitchedTree(8, 4, 4).build()
    routes = route(topology)
    reached: dict[int, set[int]] = {}
    for a in range(32):
        for b in range(32):
            for link in routes.path(a, b):
                if topology.nodes[topology.source[link]].startswith("spine"):
                    reached.setdefault(link, set()).add(b)
    assert len(reached) == 32
    assert all(len(devices) == 1 for devices in reached.values())


def test_rail_traffic_inside_a_pod_does_not_see_the_spine():
    shape = RailCluster(nodes=16, per_node=8, pod_nodes=8, spines=4, blocking=4.0)
    links = {"nvlink": Channel(450e9), "rail": Channel(50e9), "spine": Channel(50e9)}
    fabric = RoutedTopology(shape, links)
    rate = lambda n, s: 1e-9 / float(fabric.link(Group(float(n), float(s))).beta_s_per_byte)  # noqa: E731
    assert rate(8, 8) == pytest.approx(50.0)  # a rail inside a pod: its card
    assert rate(64, 1) == pytest.approx(400.0)  # eight rings, eight cards
    assert rate(2, 64) == pytest.approx(12.5)  # across pods: every card's traffic through a core four times too narrow
    assert rate(8, 1) == pytest.approx(450.0)


def test_a_mesh_of_eight_gives_a_group_all_its_links():
    """MI300X: a pair has one link of 64 GB/s, eight have seven."""
    links = {"xgmi": Channel(64e9), "port": Pcie(16e9), "uplink": Pcie(16e9), "root": Pcie(16e9)}
    fabric = RoutedTopology(PcieBoxes(), links)
    for size in (2, 4, 8):
        assert 1e-9 / float(fabric.link(Group(float(size))).beta_s_per_byte) == pytest.approx(64.0 * (size - 1))


def test_a_snake_round_a_torus_takes_one_hop_a_step():
    topology = Torus((4, 6)).build()
    orders = ring_orders(topology, np.arange(24))
    assert len(orders) == 4  # two directions for each dimension that may run fastest
    counts = route(topology).by_kind(orders[0], np.roll(orders[0], -1))
    assert counts[:-1].max() == 1


@pytest.mark.parametrize("flows", [tree_flows, exchange_flows])
def test_trees_and_exchanges_send_what_a_member_has(flows):
    made = flows(np.arange(7))
    sent = np.bincount(made.source, made.weight, minlength=7)
    if flows is exchange_flows:
        assert sent == pytest.approx(1.0)
    else:  # two trees of 6 edges, half a message up and down each
        assert sent.sum() == pytest.approx(2 * 6)


def test_slopes_in_every_rate_and_latency():
    shape, _ = FABREX["2s-2rp-split-flat"]
    links = {"xgmi": Channel(30e9, 1e-6), "port": Channel(26e9, 2e-7), "uplink": Pcie(16e9), "root": Channel(9e9)}
    fabric = RoutedTopology(shape, links)
    values = {path: float(value) for path, _, value in walk(fabric) if float(value) > 0}

    def seconds(point, sharpness=None):
        def time(point):
            link = replace(fabric, point).link(Group(16.0))
            return 15 * link.alpha_s + 1e6 * link.beta_s_per_byte

        return (time if sharpness is None else reading(PNorm(sharpness), time))(point)

    for sharpness in (None, 8.0):
        slopes = jax.grad(seconds)(values, sharpness)
        for path, slope in slopes.items():
            step = 1e-6 * values[path]
            up, down = (seconds(values | {path: values[path] + sign * step}, sharpness) for sign in (1, -1))
            assert float(slope) == pytest.approx(float((up - down) / (2 * step)), rel=2e-5, abs=1e-22), path
    hard, soft = float(seconds(values)), float(seconds(values, 8.0))
    assert hard <= soft <= hard * 4 ** (1 / 8)


@pytest.mark.parametrize("seed", range(3))
def test_slopes_link_by_link_are_the_dual_prices(seed):
    """Automatic differentiation against the linear programme, at random rates."""
    topology = FABREX["2s-2rp-split-flat"][0].build(CABLES)
    on_link = load(route(topology), all_flows(topology, 16, 1))
    rates = topology.bandwidth_bytes_per_s * np.random.default_rng(seed).uniform(0.5, 1.5, len(on_link))
    slopes = jax.grad(lambda rate: 1 / seconds_per_byte(jnp.asarray(on_link), rate))(jnp.asarray(rates))
    np.testing.assert_allclose(slopes, best_rates(on_link[:, None], rates).price, atol=1e-9)
    smooth = lambda rate: reading(PNorm(12.0), seconds_per_byte)(jnp.asarray(on_link), jnp.asarray(rate))  # noqa: E731
    hard, soft = seconds_per_byte(jnp.asarray(on_link), jnp.asarray(rates)), smooth(rates)
    assert hard <= soft <= hard * len(on_link) ** (1 / 12)
    busiest = int(np.argmax(on_link / rates))
    step = 1e-5 * rates[busiest] * np.eye(len(rates))[busiest]
    numeric = float(smooth(rates + step) - smooth(rates - step)) / (2 * step[busiest])
    assert float(jax.grad(smooth)(jnp.asarray(rates))[busiest]) == pytest.approx(numeric, rel=1e-5)


def test_all_groups_of_a_fabric_are_finite_and_legal():
    links = {"port": Channel(50e9, 1e-6), "spine": Channel(50e9, 1e-6)}
    fabric = RoutedTopology(SwitchedTree(4, 4, 4), links, pattern="all_to_all")
    check_ranges(fabric)
    assert get_path(fabric, "links.spine.bandwidth_bytes_per_s") == 50e9
    sizes = jnp.array([1.0, 2.0, 5.0, 16.0, 99.0])
    beta = jax.vmap(lambda size: fabric.link(Group(size)).beta_s_per_byte)(sizes)
    assert np.isfinite(beta).all()
    assert float(beta[-1]) == float(beta[-2])  # as far as it reaches


EDGES = """
name: two boxes
endpoints: [a, b, c, d]
edges:
  - {from: a, to: s, kind: port, bandwidth_bytes_per_s: 5.0e+10, latency_s: 1.0e-6}
  - {from: b, to: s, kind: port, bandwidth_bytes_per_s: 5.0e+10, latency_s: 1.0e-6}
  - {from: c, to: t, kind: port, bandwidth_bytes_per_s: 5.0e+10, latency_s: 1.0e-6}
  - {from: d, to: t, kind: port, bandwidth_bytes_per_s: 5.0e+10, latency_s: 1.0e-6}
  - {from: s, to: t, bandwidth_bytes_per_s: 2.0e+10, latency_s: 2.0e-6}
"""


def test_a_topology_from_a_file(tmp_path):
    path = tmp_path / "rack.yaml"
    path.write_text(EDGES, encoding="utf-8")
    fabric = topology_from_file(str(path))
    assert float(1 / fabric.link(Group(2.0)).beta_s_per_byte) == pytest.approx(50e9)
    assert float(1 / fabric.link(Group(4.0)).beta_s_per_byte) == pytest.approx(20e9)
    assert float(fabric.link(Group(4.0)).alpha_s) == pytest.approx((2 * 2e-6 + 2 * 4e-6) / 4)
    wider = replace(fabric, {"links.s - t.bandwidth_bytes_per_s": 30e9})
    assert float(1 / wider.link(Group(4.0)).beta_s_per_byte) == pytest.approx(30e9)


def test_a_file_stands_in_for_the_fabric_of_a_study(tmp_path):
    (tmp_path / "rack.yaml").write_text(EDGES, encoding="utf-8")
    path = f"cluster.network.scale_up.fabric.path={tmp_path}/rack.yaml"
    fabric = scenario_from_config("fabric=topology_file", path).cluster.network["scale_up"].fabric
    assert isinstance(fabric, RoutedTopology)
    assert float(fabric.reach()) == 4
    with pytest.raises(ConfigError, match=r"scale_up\.fabric: topology file .*nowhere.yaml' does not exist"):
        scenario_from_config("fabric=topology_file", path.replace("rack", "nowhere"))
    with pytest.raises(ConfigError, match=r"scale_up\.fabric\.path is missing"):
        scenario_from_config("fabric=topology_file")


def test_node_link_json_says_the_same(tmp_path):
    (tmp_path / "rack.yaml").write_text(EDGES, encoding="utf-8")
    first = read_topology(tmp_path / "rack.yaml")
    graph = nx.DiGraph()
    for device, node in enumerate("abcd"):
        graph.add_node(node, endpoint=device)
    for edge in range(len(first.source)):
        ends = first.nodes[first.source[edge]], first.nodes[first.target[edge]]
        rate, wait = float(first.bandwidth_bytes_per_s[edge]), float(first.latency_s[edge])
        graph.add_edge(*ends, bandwidth_bytes_per_s=rate, latency_s=wait, kind=first.kinds[first.kind[edge]])
    (tmp_path / "rack.json").write_text(json.dumps(nx.node_link_data(graph)), encoding="utf-8")
    second = read_topology(tmp_path / "rack.json")
    loads = [load(route(t), all_flows(t, 4, 1)) for t in (first, second)]
    rates = [equal_rate(on, t.bandwidth_bytes_per_s) for on, t in zip(loads, (first, second), strict=True)]
    assert rates == [pytest.approx(20e9)] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (EDGES.rsplit("  - ", 1)[0], "disconnected: c"),
        (EDGES.replace("{from: s, to: t, ", "{from: s, to: a, "), "edges has s -> a twice; give parallel links one"),
        (EDGES.replace("bandwidth_bytes_per_s: 2.0e+10, ", ""), "link s -> t has no bandwidth_bytes_per_s"),
        (EDGES.replace("latency_s: 2.0e-6", "latency_s: -1"), "link s -> t: latency_s = -1"),
        (EDGES.replace("2.0e+10", "fast"), "bandwidth_bytes_per_s = 'fast' is not a plain number"),
        (EDGES.replace("endpoints:", "switches: [s]\nendpoints:"), "unknown node 't'"),
        (EDGES.replace("endpoints: [a, b, c, d]", ""), "endpoints is missing"),
        (EDGES.replace("[a, b, c, d]", "{a: {bx: 1}, b: {}, c: {}, d: {}}"), "no key 'bx' (did you mean 'box'?)"),
        (EDGES.replace("[a, b, c, d]", "{a: {box: x}, b: {}, c: {}, d: {}}"), "box = 'x' is not a whole number"),
        ("graphml: {}", "neither a YAML edge list"),
        ("a: [", "cannot be read"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path, text, said):
    (tmp_path / "bad.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        read_topology(tmp_path / "bad.yaml")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_other_bad_input_is_refused():
    with pytest.raises(ConfigError, match="does not exist"):
        read_topology("nowhere.yaml")
    topology = Crossbar(4).build()
    with pytest.raises(ConfigError, match="spans nothing"):
        topology.members(["gpu 1", "gpu 1"])
    with pytest.raises(ConfigError, match=r"'gpu 9' is no node.*did you mean"):
        topology.members(["gpu 1", "gpu 9"])
    with pytest.raises(ConfigError, match="is a switch"):
        topology.members(["gpu 1", "switch 0"])
    with pytest.raises(ConfigError, match="has no bandwidth_bytes_per_s: no link of kind 'port'"):
        Crossbar(4).build({"prot": Cable(1e9)})
    with pytest.raises(ConfigError, match="latency_s = -1"):
        Crossbar(4).build({"port": Cable(1e9, -1.0)})
    with pytest.raises(ConfigError, match=r"links\.port is missing"):
        RoutedTopology(Crossbar(4), {})
    with pytest.raises(ConfigError, match="pattern = 'rings'"):
        RoutedTopology(Crossbar(4), {"port": Channel(1e9)}, pattern="rings")
    with pytest.raises(ConfigError, match="PcieBoxes: uplinks = 0 must be"):
        PcieBoxes(uplinks=0)
    with pytest.raises(ConfigError, match="RailCluster: blocking = 0 must be positive"):
        RailCluster(blocking=0.0)
    lone = nx.DiGraph([("a", "b", {"bandwidth_bytes_per_s": 1.0})])
    with pytest.raises(ConfigError, match="disconnected"):
        from_networkx(lone, "one way")
