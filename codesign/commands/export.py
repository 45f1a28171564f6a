"""`codesign export`: launch commands, or files, for a design that a search found."""

import math
import sys
from collections.abc import Callable
from pathlib import Path

from ..core.atomic_files import write_files
from ..core.errors import ConfigError, suggestion
from ..report.run_folder import RunFolder, read_run
from ..study.objective import share_text
from .export_cluster import dynamo, k8s, leader_worker_set, llm_d
from .export_maxtext import maxtext
from .export_megatron import megatron
from .export_plan import Deployment, deployment
from .export_serving import sglang, trtllm, vllm
from .export_training import torchtitan

TARGETS: dict[str, Callable[[Deployment], dict[str, str]]] = {
    "vllm": vllm, "sglang": sglang, "trtllm": trtllm, "megatron": megatron, "torchtitan": torchtitan,
    "maxtext": maxtext, "k8s": k8s, "lws": leader_worker_set, "dynamo": dynamo, "llm-d": llm_d,
}  # fmt: skip
SHOWN = 5  # ranks that a message lists


def exported(run: Path | str, to: str, design: int = 1, *, anyway: bool = False) -> dict[str, str]:
    """Name of a file -> its text, for a design of a run, by its rank.

    Args:
        run: its folder.
        to: one of `TARGETS`.
        design: rank of the design.
        anyway: export a design that violates a limit of its study too, with a comment that says so.

    Raises:
        ConfigError: no such run, design or target, a design that breaks a limit, or a plan that the target cannot run.
    """
    if to not in TARGETS:
        raise ConfigError(f"export: --to {to!r} is not one of {', '.join(TARGETS)}{suggestion(to, TARGETS)}")
    folder = read_run(run)
    result = deployment(folder, design)
    if not result.feasible and not anyway:
        raise ConfigError(
            f"export: design {design} of {str(folder.path)!r} breaks {_broken(result)}; {_meeting(folder)};"
            " --anyway exports it all the same"
        )
    return TARGETS[to](result)


def _broken(found: Deployment) -> str:
    """Constraints that a design violates, as text, the worst first."""
    worst = sorted(found.broken.items(), key=lambda item: -item[1])
    used = [share_text(share, 1) + ("" if share == math.inf else " of what is allowed") for _, share in worst]
    told = [f"{name} ({text})" for (name, _), text in zip(worst, used, strict=True)]
    return " and ".join(told) or "a limit of its study or a rule of its plan"


def _meeting(run: RunFolder) -> str:
    """Text that lists the ranks of a run's feasible designs."""
    kept = run.designs["feasible"].astype(bool)
    ranks = [f"{rank:g}" for rank in run.designs.loc[kept, "rank"]]
    if not ranks:
        return "no design of this run keeps every limit"
    more = f" and {len(ranks) - SHOWN} more" if len(ranks) > SHOWN else ""
    return f"designs that keep every limit: {', '.join(ranks[:SHOWN])}{more}"


def export_design(run: str, to: str, design: int, out: str | None, *, anyway: bool = False) -> int:
    """Print the files one after another, or write them into a folder and print their names."""
    files = exported(run, to, design, anyway=anyway)
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
