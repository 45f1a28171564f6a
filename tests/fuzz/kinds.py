"""What strangers may send: one maker of cases for each kind of input."""

import dataclasses
import functools
import json
import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS)] * (str(TESTS) not in sys.path)

from example_run import write_run  # noqa: E402
from hub_kinds_by_hand import KINDS_BY_HAND  # noqa: E402
from test_importers import FILES  # noqa: E402
from test_observe import STREAM  # noqa: E402

from codesign.config import build, scenario_from_config, study_from_config  # noqa: E402
from codesign.config.groups import available, groups  # noqa: E402
from codesign.core.errors import ConfigError  # noqa: E402
from codesign.core.resources import conf_dir  # noqa: E402
from codesign.core.untrusted_io import read_json, read_yaml_file, written  # noqa: E402
from codesign.evidence.importers import as_csv, imported, is_typed, typed_rows  # noqa: E402
from codesign.evidence.measurements import SCHEMAS, survey, tables  # noqa: E402
from codesign.evidence.observing.endpoint import _TokenEvents  # noqa: E402
from codesign.model.hardware import residual  # noqa: E402
from codesign.model.networks.topology.files import read_topology  # noqa: E402
from codesign.model.workloads import from_config_json  # noqa: E402
from codesign.report.run_folder import MANIFEST, WRITTEN, read_run  # noqa: E402
from codesign.search.amortised import guesser as weights_file  # noqa: E402
from codesign.search.assignment import DeviceKind, PoolOption, assign  # noqa: E402
from codesign.search.exhaustive.sweep import TopDesigns  # noqa: E402
from codesign.study.objective import Expression  # noqa: E402
from codesign.verification import Refuted, check_assignment  # noqa: E402
from fuzz.harness import TOKENS, Case, Kind, flipped, mutated  # noqa: E402

PLACE = Path(tempfile.mkdtemp(prefix="codesign-fuzz-"))
"""Of the files that are tried; one process, one folder."""


def file_with(name: str, data: bytes) -> Path:
    """A file that holds these bytes."""
    path = PLACE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def quietly(run: Callable[[], Any]) -> Callable[[], Any]:
    """The same without warnings, which are no failure."""

    def silent() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return run()

    return silent


def table(rng: random.Random) -> Case:
    """A table of measurements with cells, lines or columns gone wrong."""
    schema = rng.choice(SCHEMAS)
    text = mutated((TESTS / "data" / "tables" / f"{schema.name}.csv").read_bytes(), rng)
    path = file_with(f"tables/{schema.name}.csv", text)

    def run() -> None:
        for other in path.parent.iterdir():
            if other != path:
                other.unlink()
        survey(path.parent)
        tables(path.parent, schema.name)

    return Case(f"{schema.name}: {text[:200]!r}", quietly(run))


@functools.cache
def _checkpoint() -> tuple[TopDesigns, bytes]:
    rng = np.random.default_rng(3)
    kept = dataclasses.replace(
        TopDesigns.empty(8, 12), best=rng.random(5), best_at=rng.integers(0, 9, (5, 2)), front=rng.random((4, 2)),
        front_at=rng.integers(0, 9, (4, 2)), by_value=rng.random(12), edges=np.linspace(0, 1, 65),
    )  # fmt: skip
    path = PLACE / "checkpoint.npz"
    kept.save(path, "study")
    return kept, path.read_bytes()


def _alike(first: Any, second: Any) -> bool:
    fields = [field.name for field in dataclasses.fields(first)]
    return all(np.array_equal(getattr(first, name), getattr(second, name), equal_nan=True) for name in fields)


def checkpoint(rng: random.Random) -> Case:
    """The state of a search that was cut off, damaged."""
    kept, whole = _checkpoint()
    path = file_with("checkpoint.npz", flipped(whole, rng))
    return Case("a checkpoint", lambda: _alike(kept, TopDesigns.load(path, "study")))


@functools.cache
def _weights() -> tuple[Any, bytes]:
    rng = np.random.default_rng(4)
    told = {
        "family": "any", "plan": {"tp": [1.0, 2.0]}, "hardware": ["a"], "inputs": ["b"], "limits": ["c"],
        "facts": {"goal": "time_s"},
    }  # fmt: skip
    path = PLACE / "weights.npz"
    weights_file.write(path, told, rng.random(3), rng.random((3, 2)), {"Dense_0": {"kernel": rng.random((2, 4))}})
    return weights_file.read(path), path.read_bytes()


def _same(first: Any, second: Any) -> bool:
    told, *arrays = first
    other, *others = second
    leaves = [dict(weights_file.flat(tree)) for tree in (arrays[-1], others[-1])]
    return (
        told == other
        and all(np.array_equal(a, b) for a, b in zip(arrays[:-1], others[:-1], strict=True))
        and leaves[0].keys() == leaves[1].keys()
        and all(np.array_equal(leaves[0][name], leaves[1][name]) for name in leaves[0])
    )


def weights(rng: random.Random) -> Case:
    """A trained network, damaged."""
    whole, data = _weights()
    path = file_with("damaged_weights.npz", flipped(data, rng))
    return Case("weights", lambda: _same(whole, weights_file.read(path)))


def learned(rng: random.Random) -> Case:
    """A learned factor of kernels, damaged."""
    shipped = rng.choice(sorted((conf_dir() / "calibration" / "residual").glob("*.npz")))
    path = file_with("learned.npz", flipped(shipped.read_bytes(), rng))

    def run() -> bool:
        result, whole = residual.load(path), residual.load(shipped)
        pairs = zip((*result.weights, *result.biases), (*whole.weights, *whole.biases), strict=True)
        return result.names == whole.names and all(np.array_equal(one, other) for one, other in pairs)

    return Case(shipped.name, run)


@functools.cache
def _run() -> Path:
    folder = write_run(PLACE / "run")
    (folder / MANIFEST).write_text(json.dumps(written(folder, WRITTEN)))
    return folder


def run_folder(rng: random.Random) -> Case:
    """The folder of a run with one file damaged, with and without its checksums."""
    source, target = _run(), PLACE / "damaged_run"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    path = rng.choice(
        sorted(path for path in target.iterdir() if path.suffix in (".parquet", ".json", ".yaml", ".txt"))
    )
    data = path.read_bytes()
    changed = (flipped if path.suffix == ".parquet" else mutated)(data, rng)
    path.write_bytes(changed)
    noted = rng.random() < 0.7
    if not noted:
        (target / MANIFEST).unlink(missing_ok=True)
    seen = not noted or changed == data or path.name not in {*WRITTEN}
    return Case(f"{path.name}, {'with' if noted else 'without'} checksums", lambda: read_run(target), seen)


EDGES = """
name: rack
endpoints: {gpu0: {box: 0}, gpu1: {box: 0}, gpu2: {box: 1}, gpu3: {box: 1}}
switches: [leaf]
edges:
  - {from: gpu0, to: leaf, bandwidth_bytes_per_s: 50e9, latency_s: 1e-6, kind: cable, energy_j_per_byte: 1e-11}
  - {from: gpu1, to: leaf, bandwidth_bytes_per_s: 50e9, width: 2}
  - {from: gpu2, to: leaf, bandwidth_bytes_per_s: 5.0e10, one_way: false}
  - {from: gpu3, to: leaf, bandwidth_bytes_per_s: 50000000000}
"""
LINKS = {
    "directed": False, "multigraph": False, "graph": {},
    "nodes": [{"id": "a", "endpoint": 0}, {"id": "b", "endpoint": 1}, {"id": "s"}],
    "links": [
        {"source": "a", "target": "s", "bandwidth_bytes_per_s": 5e10, "kind": "cable", "latency_s": 1e-6},
        {"source": "b", "target": "s", "bandwidth_bytes_per_s": 5e10, "kind": "cable", "latency_s": 1e-6},
    ],
}  # fmt: skip


def graph(rng: random.Random) -> Case:
    """A topology as an edge list or as node-link JSON, gone wrong."""
    name, text = rng.choice((("graph.yaml", EDGES), ("graph.json", json.dumps(LINKS, indent=1))))
    data = mutated(text.encode(), rng)
    path = file_with(name, data)
    return Case(f"{name}: {data[:300]!r}", quietly(lambda: read_topology(path)))


def hub(rng: random.Random) -> Case:
    """A published `config.json`, gone wrong."""
    source = rng.choice(sorted((TESTS / "data" / "hub").glob("*.json")))
    data = mutated(source.read_bytes(), rng)
    path = file_with("config.json", data)
    return Case(f"{source.name}: {data[:300]!r}", quietly(lambda: from_config_json(path)))


def _quantised(rng: random.Random) -> tuple[Any, Any]:
    """A configuration of layers of several kinds, and what a checkpoint may say of its formats."""
    name = rng.choice(sorted(KINDS_BY_HAND))
    groups = {
        "weights": {"num_bits": rng.choice([4, 8]), "type": rng.choice(["int", "float"]), "group_size": 16},
        "input_activations": rng.choice([None, {"num_bits": 8, "type": "float"}]), "targets": ["Linear"],
    }  # fmt: skip
    ignored = ["lm_head", "re:.*self_attn.*", "model.layers.0*", "vision_tower"]
    said = rng.choice(
        [
            {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ignored},
            {"quant_method": rng.choice(["awq", "gptq"]), "bits": 4, "group_size": 128},
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": groups}, "ignore": ignored},
            {"quant_algo": rng.choice(["NVFP4", "FP8"]), "kv_cache_quant_algo": "FP8", "exclude_modules": ignored},
            {"quant_algo": "MIXED_PRECISION", "quantized_layers": {"lm_head": {"quant_algo": "W4A16_NVFP4"}}},
        ]
    )
    return KINDS_BY_HAND[name], said


def formats(rng: random.Random) -> Case:
    """A `config.json` with layers of several kinds and a `hf_quant_config.json` beside it, one of them gone wrong."""
    config, said = _quantised(rng)
    inside = rng.random() < 0.5
    whole = config | {"quantization_config": said} if inside else config
    texts = [json.dumps(whole), json.dumps({"quantization": said})]
    broken = rng.randrange(2)
    data = [mutated(text.encode(), rng) if n == broken else text.encode() for n, text in enumerate(texts)]
    path = file_with("config.json", data[0])
    beside = path.with_name("hf_quant_config.json")
    beside.write_bytes(data[1])

    def run() -> None:
        try:
            from_config_json(path)
        finally:
            beside.unlink(missing_ok=True)

    return Case(f"{data[broken][:300]!r}", quietly(run))


def benchmark(rng: random.Random) -> Case:
    """What a benchmark wrote, gone wrong, as `codesign import` reads it."""
    name, text = rng.choice(sorted(FILES.items()))
    data = mutated(text.encode(), rng)
    path = file_with(name, data)

    def run() -> None:
        rows = imported(path)
        as_csv(typed_rows(rows, {"cluster": "a-400G"}) if is_typed(rows) else rows, {})

    return Case(f"{name}: {data[:300]!r}", quietly(run))


def stream(rng: random.Random) -> Case:
    """A streamed answer of a server, gone wrong, in two pieces: what failed is said, nothing breaks in."""
    data = mutated(STREAM, rng)
    at = rng.randrange(len(data) + 1)

    def run() -> None:
        events = _TokenEvents()
        for piece in (data[:at], data[at:]):
            events.take(piece)
        answer = events.answer(0.0, 200, "")
        if answer.error:
            raise ConfigError(answer.error)
        assert answer.tokens > 0

    return Case(f"{at}: {data[:300]!r}", quietly(run))


METRICS = ("time_s", "joules_per_token", "usage.hbm", "capex_usd", "nothing", "time_s.", "é")
PARTS = (
    *METRICS, "+", "-", "*", "/", "**", "(", ")", "max(", "min(", "sqrt(", ",", "2", "1e308", "1e-400", "not", "@",
    "lambda x: x", "x.y()", "[1]", "'a'", "1j", "True", "0", ":=", "if", "\n", "9**9**9", "%", "//",
)  # fmt: skip


def expression(rng: random.Random) -> Case:
    """A formula over metrics, of pieces that may or may not fit."""
    joined = rng.choice((" ", "", " "))
    text = joined.join(rng.choice(PARTS) for _ in range(rng.choice((1, 3, 5, 9, 40, 400))))
    text = rng.choice((text, text, rng.choice(TOKENS), f"{text}{rng.choice(TOKENS)}"))

    def run() -> None:
        read = Expression(text, "objective.minimise")
        read.check(METRICS[:4])
        read.value(lambda name: jnp.asarray(2.0))

    return Case(repr(text[:300]), quietly(run))


@functools.cache
def _components() -> tuple[Path, ...]:
    return tuple(sorted(path for path in conf_dir().rglob("*.yaml") if "_target_" in path.read_text(encoding="utf-8")))


def component(rng: random.Random) -> Case:
    """A file of `conf/`, gone wrong, read and built as a part of a configuration."""
    source = rng.choice(_components())
    data = mutated(source.read_bytes(), rng)
    path = file_with("component.yaml", data)

    def run() -> None:
        result = read_yaml_file(path, "component.yaml")
        build({"part": result})

    return Case(f"{source.name}: {data[:300]!r}", quietly(run))


OWN = """# @package _global_
# A chip of somebody's own
defaults:
  - h100_sxm
  - _self_
cluster:
  accelerator:
    name: chip
    hbm: {capacity_bytes: 160GB, bandwidth_bytes_per_s: 5.0e+12}
    provenance:
      hbm.capacity_bytes: {source: ours, kind: assumed}
"""


def own(rng: random.Random) -> Case:
    """A user's own file beside ours, gone wrong, composed and built."""
    data = mutated(OWN.encode(), rng)
    path = file_with("own/accelerator/chip.yaml", data)
    return Case(repr(data[:600]), quietly(lambda: scenario_from_config("accelerator=chip", conf=path.parent.parent)))


VALUES = (
    "0", "-1", "nan", "inf", "1e400", "1e-320", "true", "null", "[]", "{}", "abc", "1,2", "'8'", "1e30", "7.5", "2",
    "900GB/s", "${oc.env:HOME}", "${plan.tp}", "???", "h100", "../x", "a" * 500, "[[1]]", "{a: 1}", "8",
)  # fmt: skip
KEYS = (
    "plan.tp", "plan.nothing", "cluster.device_count", "cluster.accelerator.hbm.capacity_bytes", "workload.model",
    "workload.model.layers", "workload.global_batch", "objective.minimise", "objective.limits.capex_usd", "seed",
    "space.plan.tp", "space.hardware", "search.gap", "facility.pue", "name", "hydra.run.dir", "nothing", "", "model",
    "cluster.network.scale_up.fabric.bandwidth_bytes_per_s", "objective.limits.ttft_s", "_target_", "workload",
    "search._target_", "+new.key", "~objective", "cluster.network.levels",
)  # fmt: skip


def configuration(rng: random.Random) -> Case:
    """Overrides: groups by options that fit or not, keys by values that fit or not."""
    overrides = []
    for _ in range(rng.choice((1, 2, 3, 5))):
        if rng.random() < 0.5:
            group = rng.choice(groups())
            options = [*available(group), "nothing", "", "../accelerator/h100_sxm"]
            overrides.append(f"{group}={rng.choice(options)}")
        else:
            overrides.append(f"{rng.choice(KEYS)}={rng.choice(VALUES)}")
    return Case(" ".join(overrides), quietly(lambda: study_from_config(*overrides)))


@functools.cache
def _assigned() -> bytes:
    """The certificate of a fleet, as JSON."""
    kinds = [DeviceKind("old", 8, 4.0, 0.5, 1000.0, 500.0, owned_boxes=1), DeviceKind("new", 8, 6.0)]
    options = [
        PoolOption(name, kind.name, size, size * speed, 0.1 * size)
        for name, speed in (("a", 1.0), ("b", 0.7)) for kind in kinds for size in (2, 8)
    ]  # fmt: skip
    rates = {"a": 9.5, "b": 4.2}
    result = assign(rates, options, kinds)
    return json.dumps({
        "rates": rates, "options": [one._asdict() for one in result.options],
        "kinds": [dataclasses.asdict(kind) for kind in kinds], "limits": {},
        "replicas": result.replicas, "bought": result.bought, "owned": result.owned,
        "usd_per_s": result.usd_per_s, "bound": result.bound, "nodes": [list(node) for node in result.nodes],
    }).encode()  # fmt: skip


def assigned(rng: random.Random) -> Case:
    """The certificate of a fleet, gone wrong, checked in fractions."""
    data = mutated(_assigned(), rng)
    path = file_with("fleet.json", data)

    def run() -> None:
        try:
            check_assignment(read_json(path, "fleet"))
        except Refuted as error:
            raise ConfigError(str(error)) from error

    return Case(repr(data[:300]), run)


KINDS: dict[str, Kind] = {
    "tables": table, "checkpoints": checkpoint, "weights": weights, "learned": learned, "runs": run_folder,
    "graphs": graph, "hub": hub, "formats": formats, "expressions": expression,
    "components": component, "configurations": configuration,
    "own": own, "benchmarks": benchmark, "streams": stream, "fleets": assigned,
}  # fmt: skip
