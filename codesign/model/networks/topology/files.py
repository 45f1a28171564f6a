"""Topologies from files: a YAML edge list, or node-link JSON as networkx writes it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.errors import ConfigError, suggestion
from ....core.json_yaml import is_mapping
from ....core.untrusted_io import read_json, read_yaml_file
from .graph import Cable, Topology, from_networkx
from .shapes import AbstractShape, new_graph

if TYPE_CHECKING:
    import networkx as nx

PLACE = ("box", "rail", "layer")
PARALLEL = "give parallel links one edge with a `width`; an edge leads both ways unless it is `one_way: true`"
FORMATS = "a YAML edge list (endpoints, edges) nor node-link JSON (nodes, links)"


def read_topology(path: str | Path) -> Topology:
    """The topology that a file describes.

    A YAML edge list has `endpoints` (names in the order of the devices, or name -> {box, rail}) and `edges`, each with
    `from`, `to`, `bandwidth_bytes_per_s` and optionally `kind`, `latency_s`, `energy_j_per_byte`, `width` and
    `one_way: true`. An edge without a kind is a kind of its own. Node-link JSON carries the same keys on its nodes
    (`endpoint`: device number) and links.

    Raises:
        ConfigError: no such file, another format, an unknown node, or a topology that cannot be.
    """
    path = Path(path)
    if not path.exists():
        raise ConfigError(f"topology file {str(path)!r} does not exist")
    what = f"topology file {path.name}"
    result = read_json(path, what) if path.suffix == ".json" else read_yaml_file(path, what)
    if is_mapping(result) and "nodes" in result and ("links" in result or "edges" in result):
        graph = _node_link(result, path.name)
    elif is_mapping(result) and "edges" in result:
        graph = _edge_list(result, path.name)
    else:
        raise ConfigError(f"topology file {path.name} is neither {FORMATS}")
    forwards = result.get("forwards", False)
    if not isinstance(forwards, bool):
        raise ConfigError(f"topology file {path.name}: forwards = {forwards!r}; allowed: true or false")
    return from_networkx(graph, str(result.get("name", path.stem)), forwards=forwards)


def _node_link(document: dict[str, Any], name: str) -> "nx.DiGraph[Any]":
    edges = "links" if "links" in document else "edges"
    nodes = _listed(document, "nodes", name, (list,))
    for node in nodes:
        if not is_mapping(node) or not isinstance(node.get("id"), str | int):
            raise ConfigError(f"topology file {name}: node {node!r}; allowed: a mapping with an `id`, word or number")
    _refuse_repeated([str(node["id"]) for node in nodes], "nodes", name)
    ids = {node["id"] for node in nodes}
    for link in _listed(document, edges, name, (list,)):
        for end in ("source", "target"):
            if not is_mapping(link) or not isinstance(link.get(end), str | int) or link[end] not in ids:
                raise ConfigError(f"topology file {name}: link {link!r} names an unknown node")
    ends = [(str(link["source"]), str(link["target"])) for link in _listed(document, edges, name, (list,))]
    both = ends if document.get("directed", False) else [tuple(sorted(pair)) for pair in ends]
    _refuse_repeated([" -> ".join(pair) for pair in both], edges, name, PARALLEL)
    graph: Any = import_module("networkx").node_link_graph(document, edges=edges)  # a tenth of a second to load
    if graph.is_multigraph():
        raise ConfigError(f"topology file {name} is a multigraph: give parallel links one edge with a `width`")
    return _own_kinds(graph if graph.is_directed() else graph.to_directed())


def _edge_list(document: dict[str, Any], name: str) -> "nx.DiGraph[Any]":
    graph, listed = new_graph(), _listed(document, "endpoints", name, (list, dict))
    if not listed:
        raise ConfigError(f"topology file {name}: endpoints is missing: name the devices in their order")
    _refuse_repeated([str(end) for end, _ in _named(listed)], "endpoints", name)
    for number, (end, values) in enumerate(_named(listed)):
        if values is not None and not is_mapping(values):
            raise ConfigError(f"topology file {name}: endpoint {end} = {values!r}; allowed: {{box: 0}} or nothing")
        for key in values or {}:
            if key not in PLACE:
                raise ConfigError(f"topology file {name}: endpoint {end}: no key {key!r}{suggestion(key, PLACE)}")
        graph.add_node(str(end), endpoint=number, **(values or {}))
    named = [str(node) for node in _listed(document, "switches", name, (list,))]
    _refuse_repeated([*(end for end in map(str, graph.nodes) if end in named), *named], "switches", name)
    switches = set(named)
    graph.add_nodes_from(switches)
    for edge in _listed(document, "edges", name, (list,)):
        if not is_mapping(edge) or "from" not in edge or "to" not in edge:
            raise ConfigError(f"topology file {name}: edge {edge!r} needs `from` and `to`")
        ends = (str(edge["from"]), str(edge["to"]))
        for end in ends:
            if switches and end not in graph:
                raise ConfigError(f"topology file {name}: edge {ends[0]} -> {ends[1]} names the unknown node {end!r}")
        values = {key: value for key, value in edge.items() if key not in ("from", "to", "one_way")}
        _check_keys(values, f"topology file {name}: edge {ends[0]} -> {ends[1]}")
        for pair in (ends,) if _is_one_way(edge, name) else (ends, ends[::-1]):
            if graph.has_edge(*pair):
                raise ConfigError(f"topology file {name}: edges has {pair[0]} -> {pair[1]} twice; {PARALLEL}")
            graph.add_edge(*pair, **values)
    return _own_kinds(graph)


def _is_one_way(edge: Mapping[str, Any], name: str) -> bool:
    """True if a link of a list leads in one direction alone."""
    value = edge.get("one_way", False)
    if not isinstance(value, bool):
        raise ConfigError(
            f"topology file {name}: edge {edge['from']} -> {edge['to']}: one_way = {value!r}; allowed: true or false"
        )
    return value


def _refuse_repeated(names: Sequence[str], key: str, name: str, helps: str = "name each once") -> None:
    """Names of a list must differ.

    Raises:
        ConfigError: the first that stands there twice.
    """
    twice = next((one for one, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ConfigError(f"topology file {name}: {key} has {twice} twice; {helps}")


def _named(listed: Any) -> list[tuple[Any, Any]]:
    """Endpoints with what is said of their places."""
    return list(listed.items()) if is_mapping(listed) else [(str(end), {}) for end in listed]


def _check_keys(values: dict[Any, Any], what: str) -> None:
    """Keys are words.

    Raises:
        ConfigError: the first that is not.
    """
    for key in values:
        if not isinstance(key, str):
            raise ConfigError(f"{what}: key {key!r}; allowed: a word")


def _listed(document: dict[str, Any], key: str, name: str, kinds: tuple[type, ...]) -> Any:
    """Value under a key, empty where it is blank.

    Raises:
        ConfigError: no list (or mapping, where that is one of the kinds).
    """
    value = document.get(key)
    if value is None:
        return ()
    if not isinstance(value, kinds):
        raise ConfigError(f"topology file {name}: {key} = {value!r}; allowed: a {' or a '.join(map(_kind, kinds))}")
    return value


def _kind(kind: type) -> str:
    return {list: "list", dict: "mapping"}[kind]


def _own_kinds(graph: "nx.DiGraph[Any]") -> "nx.DiGraph[Any]":
    """A link without a kind is named by its ends, the same in both directions."""
    for u, v, values in graph.edges(data=True):
        values.setdefault("kind", " - ".join(sorted((str(u), str(v)))))
    return graph


@dataclass(frozen=True)
class TopologyFile(AbstractShape):
    """The topology of a file as a shape: its structure, to which links of other rates may be given.

    Links of one kind share latency and energy; where their bandwidths differ, the narrowest counts as width 1.
    """

    path: str = ""

    def label(self) -> str:
        """The file's name."""
        return Path(self.path).stem

    def graph(self) -> "nx.DiGraph[Any]":
        """Nodes and links with kind and width, without numbers."""
        topology, graph = self.build(), new_graph()
        for node, name in enumerate(topology.nodes):
            graph.add_node(name, layer=topology.layer[node])
        for device, node in enumerate(topology.endpoints):
            values = dict(endpoint=device, box=int(topology.box[device]), rail=int(topology.rail[device]))
            graph.nodes[topology.nodes[int(node)]].update(values)
        for edge in range(len(topology.source)):
            ends = topology.nodes[int(topology.source[edge])], topology.nodes[int(topology.target[edge])]
            graph.add_edge(*ends, kind=topology.kinds[int(topology.kind[edge])], width=float(topology.width[edge]))
        return graph

    def build(self, links: Mapping[str, Cable] | None = None) -> Topology:
        """The file's topology, or its structure with other links.

        Raises:
            ConfigError: whatever is wrong with the file, or one kind of link with several latencies.
        """
        topology = _widths(read_topology(self.path))
        if links is None:
            return topology
        return from_networkx(self.graph(), topology.name, links, forwards=topology.forwards)


def _widths(topology: Topology) -> Topology:
    """Widths that make every bandwidth a multiple of its kind's narrowest."""
    width = np.ones(len(topology.source))
    for number, kind in enumerate(topology.kinds):
        same = topology.kind == number
        for key in ("latency_s", "energy_j_per_byte"):
            values = np.unique(getattr(topology, key)[same])
            if len(values) > 1:
                raise ConfigError(
                    f"topology {topology.name}: links of kind {kind!r} differ in {key} ({values[0]:g}, {values[1]:g}):"
                    " name their kinds apart"
                )
        width[same] = topology.bandwidth_bytes_per_s[same] / topology.bandwidth_bytes_per_s[same].min()
    return replace(topology, width=width)
