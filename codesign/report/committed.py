"""The committed outcome of a run: what was asked and found, the best designs as a table, and the figures."""

from pathlib import Path

import pandas as pd

from . import wording
from .build import build_report
from .experiment import write_experiment_report
from .run_folder import read_run

SHOWN = (
    "rank", "method", "time_s", "ttft_s", "tpot_s", "tokens_per_s", "mfu", "joules_per_token",
    "usd_per_million_tokens", "capex_usd", "provisioned_power_w", "usage.hbm", "usage.ddr", "active_constraints",
)  # fmt: skip
DESIGNS = 10


def write_run_report(run_folder: Path | str, folder: Path | str) -> Path:
    """Write `folder/<name of the study>/` with page, best designs as CSV and the run's figures.

    Where an experiment of the same name has its claims there, the run goes beside it, `<name>_search`.

    Raises:
        ConfigError: the run folder is not a run.
    """
    build_report(run_folder)
    run = read_run(run_folder)
    best = run.designs.head(DESIGNS)
    varied = [name for name in best if str(name).startswith("var.") and best[name].nunique() > 1]
    names = [name for name in (*SHOWN[:2], *varied, *SHOWN[2:]) if name in best]
    table = pd.DataFrame(best[names]).rename(columns=lambda name: name.removeprefix("var."))
    figures = {path.stem.replace("_", " "): path.read_bytes() for path in sorted((run.path / "figures").glob("*.png"))}
    units = {str(name): run.unit(str(name)) for name in table if run.setting(f"space.hardware.{name}")}
    lines = [
        f"**Best design.** {wording.found(run)}",
        f"**Objective.** {wording.asked(run)}",
        f"**Design.** {wording.design(run)}",
    ]
    lines += [f"**Confidence.** {wording.certainty(run)}"]
    name = str(run.config.get("name", "study"))
    lines += [
        f"`codesign optimize experiment={name}`, then `codesign report RUN --reports reports` rewrites this page."
    ]
    taken = (Path(folder) / name / "claims.csv").is_file()
    place, text = Path(folder) / (f"{name}_search" if taken else name), "\n\n".join(lines)
    return write_experiment_report(place, wording.title(run), {"Best designs": table}, figures, text, units)
