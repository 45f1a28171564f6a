"""Every constant of the hardware says where it comes from, and the source is in the bibliography."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from codesign.config.groups import aliases

ROOT = Path(__file__).resolve().parent.parent
GROUPS = (
    "accelerator", "host", "facility", "fabric", "scale_out", "collective", "calibration", "memory", "die", "ownership",
    "scaling_law", "reliability", "carbon", "prices", "engine_memory",
)  # fmt: skip
KINDS = {"published", "datasheet", "measured", "derived", "fitted", "assumed"}
FILES = sorted(path for group in GROUPS for path in (ROOT / "conf" / group).rglob("*.yaml"))
NAMES = [str(path.relative_to(ROOT / "conf").with_suffix("")) for path in FILES]
STRUCTURE = {"provenance", "defaults", "aliases", "prefixes", "relatives", "_target_", "name"}

_ENTRY = re.compile(r"^@\w+\{([^,\s]+),", re.MULTILINE)
BIBLIOGRAPHY = _ENTRY.findall((ROOT / "codesign" / "references.bib").read_text(encoding="utf-8"))

Entries = dict[str, dict[str, Any]]


def load(path: Path) -> dict[str, Any]:
    # The C loader: kernel files are large. Aliases of YAML stand for themselves.
    return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}


def numbers(node: Any, path: str = "") -> Iterator[str]:
    """Dotted path of every number that is no structure."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key not in STRUCTURE:
                yield from numbers(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from numbers(value, f"{path}.{index}")
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield path


def entries(node: Any, path: str = "") -> Entries:
    """Dotted path -> provenance entry, of the blocks at every level."""
    result: Entries = {}
    if isinstance(node, dict):
        prefix = f"{path}." if path else ""
        result |= {f"{prefix}{key}": entry for key, entry in (node.get("provenance") or {}).items()}
        for key, value in node.items():
            if key not in STRUCTURE:
                result |= entries(value, f"{prefix}{key}")
    return result


def exists(node: Any, path: str) -> bool:
    for key in path.split("."):
        if not isinstance(node, dict) or key not in node:
            return False
        node = node[key]
    return True


def orphans(content: dict[str, Any]) -> list[str]:
    """Numbers without an entry of provenance."""
    known = entries(content)
    return [n for n in numbers(content) if not any(n == key or n.startswith(f"{key}.") for key in known)]


def unsound(content: dict[str, Any]) -> list[str]:
    """What is wrong with entries of provenance."""
    wrong = []
    for key, entry in entries(content).items():
        if not exists(content, key):
            wrong.append(f"{key}: nothing of that name in the file")
        if entry.get("kind") not in KINDS:
            wrong.append(f"{key}: kind {entry.get('kind')!r} is none of {', '.join(sorted(KINDS))}")
        if entry.get("source") not in BIBLIOGRAPHY:
            wrong.append(f"{key}: source {entry.get('source')!r} is not in references.bib")
        if entry.get("kind") == "assumed" and not entry.get("note"):
            wrong.append(f"{key}: an assumption says in `note` what it rests on")
        if set(entry) - {"source", "at", "kind", "note", "outlier"}:
            wrong.append(f"{key}: unknown keys {sorted(set(entry) - {'source', 'at', 'kind', 'note', 'outlier'})}")
    return wrong


def test_every_number_has_an_origin_and_every_origin_is_sound():
    assert len(FILES) > 200
    wrong = {name: orphans(content) + unsound(content) for name, content in zip(NAMES, map(load, FILES), strict=True)}
    assert not {name: result[:5] for name, result in wrong.items() if result}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1", "a"),
        ("a: 1\nb: {c: 2}\nprovenance: {a: {source: assumption, kind: assumed, note: x}}", "b.c"),
        ("provenance: {a: {source: assumption, kind: assumed, note: x}}", "a: nothing of that name in the file"),
        ("a: 1\nprovenance: {a: {source: assumption, kind: guessed}}", "a: kind 'guessed' is none of"),
        ("a: 1\nprovenance: {a: {source: nobody1900, kind: published}}", "a: source 'nobody1900' is not in"),
        ("a: 1\nprovenance: {a: {source: assumption, kind: assumed}}", "a: an assumption says in `note`"),
        ("a: 1\nprovenance: {a: {source: assumption, kind: assumed, note: x, by: me}}", "a: unknown keys ['by']"),
    ],
)
def test_what_lacks_an_origin_is_found(text: str, said: str):
    (result,) = orphans(yaml.safe_load(text)) + unsound(yaml.safe_load(text))
    assert result.startswith(said)


def test_header_then_description():
    """Hydra reads `# @package` only as the first line; the next comment is what `codesign list` shows."""
    wrong = []
    for path in FILES:
        first, second = path.read_text(encoding="utf-8").splitlines()[:2]
        if path.parent.name == "prices":  # a list beside the design, under its own name
            first, second = f"# @package {path.parent.name}", first
        if not (first.startswith("# @package ") and second.startswith("# ") and len(second) > 20):
            wrong.append(str(path))
    assert not wrong


def test_bibliography_has_no_key_twice():
    assert len(BIBLIOGRAPHY) == len(set(BIBLIOGRAPHY)) > 40


def test_docstrings_cite_what_exists():
    cited = re.compile(r"\[([a-z][a-z0-9_]*(?:19|20)\d\d[a-z0-9]*)\]")
    missing = [
        f"{path.relative_to(ROOT)}: {key}"
        for folder in ("codesign", "experiments/_lib")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for key in cited.findall(path.read_text(encoding="utf-8"))
        if key not in BIBLIOGRAPHY
    ]
    assert not missing


ACCELERATORS = {path.stem: path for path in FILES if path.parent.name == "accelerator"}


def native(name: str, group: str) -> dict[str, Any]:
    """The file that an accelerator names in its own defaults list."""
    options = [item[f"/{group}"] for item in load(ACCELERATORS[name])["defaults"] if f"/{group}" in item]
    return load(ROOT / "conf" / group / f"{options[0]}.yaml")


def test_data_sheets_agree_with_the_reference_table(reference_dir):
    """Peaks, bandwidth and board power against the table that was written from data sheets independently."""
    with (reference_dir / "measured" / "hardware_peaks.csv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert rows
    for row in rows:
        name = aliases()[row["gpu"]]
        device = load(ACCELERATORS[name])["cluster"]["accelerator"]
        peaks, hbm = device["peak_flops_per_s"], device["hbm"]
        link = native(name, "fabric")["bandwidth_bytes_per_s"]
        board = device["tdp_w"] + hbm["bandwidth_bytes_per_s"] * hbm["energy_j_per_byte"]
        gib = hbm["capacity_bytes"] / 2**30
        pairs = [
            ("dense_bf16_tflops", peaks["bf16"] / 1e12, 0.002),
            ("dense_fp8_tflops", peaks.get("fp8", peaks.get("int8")) / 1e12, 0.002),
            ("dense_fp4_tflops", peaks.get("fp4", float("nan")) / 1e12, 0.002),
            ("hbm_tbytes_per_s", hbm["bandwidth_bytes_per_s"] / 1e12, 0.002),
            ("memory_gb", gib, 0.002),
            ("tdp_w", board, 0.002),
            ("scaleup_link_gbytes_per_s_one_way", link / 1e9, 0.02),  # the table leaves out 128/130 of PCIe
        ]
        for column, ours, tolerance in pairs:
            if row[column]:
                assert ours == pytest.approx(float(row[column]), rel=tolerance), f"{name}: {column}"
