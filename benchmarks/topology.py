"""Building and routing a graph of 1,024 endpoints, and pricing 10^5 vectors of link rates in one call.

    python benchmarks/topology.py            table (`--json` for machines)

Times are CPU seconds of one process on one core. Bars: 2 s to build, check and route; one vmapped call for all vectors.
"""

import json
import os
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:1]))

import jax
import jax.numpy as jnp
import numpy as np

from codesign.model.networks.fabrics import seconds_per_byte
from codesign.model.networks.topology import (
    Dragonfly,
    PcieBoxes,
    RailCluster,
    SwitchedTree,
    Torus,
    all_flows,
    load,
    route,
)

VECTORS = 100_000
SHAPE = PcieBoxes(domains=2, switches=2, split=True, name="two boxes, split flat")
SHAPES = (RailCluster(128, 8, 32, 32), SwitchedTree(64, 16, 16), Torus((32, 32)), Dragonfly(16, 16, 4, 4))


def routed() -> list[dict]:
    """CPU seconds to build a graph, to route it, and to load it with the rings of everyone."""
    rows = []
    for shape in SHAPES:
        start = time.process_time()
        topology = shape.build()
        built = time.process_time()
        routes = route(topology)
        done = time.process_time()
        load(routes, all_flows(topology, topology.size, 1))
        loaded = time.process_time()
        row = {"graph": topology.name, "endpoints": topology.size, "links": len(topology.source)}
        row |= {"build_s": built - start, "route_s": done - built, "load_s": loaded - done, "bar_s": 2.0}
        rows.append(row | {"ok": done - start < 2.0})
    return rows


def vectors() -> dict:
    """The rate of every link of one routed topology at once: inverse bus bandwidth, and its slope by every link."""
    topology = SHAPE.build()
    on_links = jnp.asarray(load(route(topology), all_flows(topology, topology.size, 1)))
    rates = jnp.asarray(np.random.default_rng(0).uniform(8e9, 64e9, (VECTORS, len(topology.source))))
    row = {"graph": SHAPE.label(), "links": len(topology.source), "vectors": VECTORS}
    for name, function in (("value_s", seconds_per_byte), ("slopes_s", jax.grad(seconds_per_byte, argnums=1))):
        together = jax.jit(jax.vmap(function, in_axes=(None, 0)))
        jax.block_until_ready(together(on_links, rates))
        start = time.process_time()
        jax.block_until_ready(together(on_links, rates))
        row[name] = time.process_time() - start
    return row


def main() -> None:
    result = {"graphs": routed(), "one call": vectors()}
    if "--json" in sys.argv:
        print(json.dumps(result, indent=2))
        return
    for row in [*result["graphs"], result["one call"]]:
        print(
            "  ".join(
                f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()
            )
        )


if __name__ == "__main__":
    main()
