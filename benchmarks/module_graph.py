"""The package as a graph: modules, imports between them, rooms by layer, cycles (there must be none).

    python benchmarks/module_graph.py                    the package as it is
    python benchmarks/module_graph.py --package DIR      another checkout's `codesign/`
    python benchmarks/module_graph.py --room search      the rooms within one
    python benchmarks/module_graph.py --types            with imports that only type checkers read
    python benchmarks/module_graph.py --dot              for Graphviz: rooms and how many imports join them

An import of a package is one of its `__init__`. What a function imports when it is called counts: a cycle that shows
late is one all the same.
"""

import argparse
import ast
import importlib.util
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

Graph = dict[str, set[str]]


def modules_of(package: Path) -> dict[str, Path]:
    """Dotted name below the package -> file; of a package its own name."""
    result = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        result[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return result


def imported(path: Path, package: Path, types: bool) -> Iterator[str]:
    """Dotted names below the package that a file imports, as far as they are written."""
    home, tree = path.relative_to(package).parts[:-1], ast.parse(path.read_text(encoding="utf-8"), str(path))
    guarded = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    ]
    left = set() if types else {part for node in guarded for inner in node.body for part in ast.walk(inner)}
    for node in ast.walk(tree):
        if node in left:
            continue
        if isinstance(node, ast.Import):
            yield from (a.name.partition(".")[2] for a in node.names if a.name.split(".")[0] == package.name)
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").split(".") if node.module else []
            if node.level:
                base = [*home[: len(home) + 1 - node.level], *base]
            elif not base or base.pop(0) != package.name:
                continue
            yield from (".".join([*base, alias.name]) for alias in node.names)


def graph_of(package: Path, types: bool) -> Graph:
    """Module -> modules that it imports."""
    modules, graph = modules_of(package), {}
    for name, path in modules.items():
        asked = {
            wanted if wanted in modules else wanted.rpartition(".")[0] for wanted in imported(path, package, types)
        }
        graph[name] = {other for other in asked if other in modules and other != name}
    return graph


def rooms_of(graph: Graph, within: str) -> tuple[Graph, Counter[tuple[str, str]]]:
    """(room -> rooms it imports, imports between two rooms): the first part of each name below `within`."""
    depth = len(within.split(".")) if within else 0
    rooms, arrows = defaultdict[str, set[str]](set), Counter[tuple[str, str]]()

    def room(name: str) -> str | None:
        parts = name.split(".") if name else []
        if within and parts[:depth] != within.split("."):
            return None
        return parts[depth] if len(parts) > depth else "__init__"

    for name, others in graph.items():
        own = room(name)
        for other in others if own is not None else ():
            target = room(other)
            if own is not None and target is not None and own != target:
                rooms[own].add(target)
                arrows[own, target] += 1
        if own is not None:
            rooms[own] |= set()
    return dict(rooms), arrows


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Modules that reach each other: strongly connected parts of more than one, by the algorithm of Tarjan."""
    place, least, stack, result = {}, {}, [], []

    def visit(name: str) -> None:
        place[name] = least[name] = len(place)
        stack.append(name)
        for other in sorted(graph.get(name, ())):
            if other not in place:
                visit(other)
            if other in stack:
                least[name] = min(least[name], least[other])
        if least[name] == place[name]:
            part = [stack.pop()]
            while part[-1] != name:
                part.append(stack.pop())
            if len(part) > 1:
                result.append(sorted(part))

    for name in sorted(graph):
        if name not in place:
            visit(name)
    return result


def layers(graph: Graph) -> list[list[str]]:
    """Rooms by the longest way down from each; those of a cycle count as one."""
    part = {name: tuple(group) for group in cycles(graph) for name in group}
    depth: dict[str, int] = {}

    def of(name: str) -> int:
        if name not in depth:
            members = part.get(name, (name,))
            below = {other for member in members for other in graph.get(member, ()) if other not in members}
            deepest = max((of(other) + 1 for other in sorted(below)), default=0)
            depth.update(dict.fromkeys(members, deepest))
        return depth[name]

    result: list[list[str]] = [[] for _ in range(max(map(of, graph), default=-1) + 1)]
    for name in sorted(graph):
        result[depth[name]].append(name)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path)
    parser.add_argument("--room", default="")
    parser.add_argument("--types", action="store_true")
    parser.add_argument("--dot", action="store_true")
    arguments = parser.parse_args()
    result = importlib.util.find_spec("codesign")
    package = arguments.package or Path(str(result and result.origin)).parent
    graph = graph_of(package, arguments.types)
    rooms, arrows = rooms_of(graph, arguments.room)
    if arguments.dot:
        lines = [f'  "{a}" -> "{b}" [label={count}];' for (a, b), count in sorted(arrows.items())]
        print("\n".join(["digraph codesign {", *lines, "}"]))
        return
    mine = {n: o for n, o in graph.items() if not arguments.room or f"{n}.".startswith(f"{arguments.room}.")}
    files = [path for name, path in modules_of(package).items() if name in mine]
    length = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    inner = sum(len(others & mine.keys()) for others in mine.values())
    print(f"{len(mine)} modules, {length:,} lines, {inner} imports between them")
    print(f"{len(rooms)} rooms, {len(arrows)} arrows between rooms, {sum(arrows.values())} imports across rooms")
    for number, names in enumerate(layers(rooms)):
        print(f"  layer {number}: {', '.join(names)}")
    for title, part in (("modules", cycles(mine)), ("rooms", cycles(rooms))):
        told = "; ".join(" <-> ".join(name or "__init__" for name in group) for group in part)
        print(f"cycles of {title}: {told or 'none'}")


if __name__ == "__main__":
    main()
