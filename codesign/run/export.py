"""`codesign export`: launch commands, or files, for a design that a search found."""

import sys
from collections.abc import Callable
from pathlib import Path

from ..atomic_files import write_files
from ..errors import ConfigError, suggestion
from ..report.run_folder import read_run
from .export_k8s import k8s
from .export_megatron import megatron
from .export_plan import Deployment, deployment
from .export_sglang import sglang
from .export_torchtitan import torchtitan
from .export_trtllm import trtllm
from .export_vllm import vllm

TARGETS: dict[str, Callable[[Deployment], dict[str, str]]] = {
    "vllm": vllm, "sglang": sglang, "trtllm": trtllm, "megatron": megatron, "torchtitan": torchtitan, "k8s": k8s,
}  # fmt: skip


def exported(run: Path | str, to: str, design: int = 1) -> dict[str, str]:
    """Name of a file -> its text, for a design of a run, by its rank.

    Raises:
        ConfigError: no such run, design or target, or a plan that the target cannot run.
    """
    if to not in TARGETS:
        raise ConfigError(f"export: --to {to!r} is not one of {', '.join(TARGETS)}{suggestion(to, TARGETS)}")
    return TARGETS[to](deployment(read_run(run), design))


def export_design(run: str, to: str, design: int, out: str | None) -> int:
    """Print the files one after another, or write them into a folder and print their names."""
    files = exported(run, to, design)
    if out is None:
        several = len(files) > 1
        for name, text in files.items():
            sys.stdout.write((f"# ---- {name}\n" if several else "") + text + ("\n" if several else ""))
        return 0
    folder = Path(out)
    write_files({folder / name: text for name, text in files.items()})
    for name in files:
        print(folder / name)
    return 0
