"""Reports: one page for a run, one Markdown page for a reproduced experiment, and the figures of both.

Tables and figures come from the run folder alone: no search, no JAX. The menu is lazy: who asks for words and units
alone draws nothing.
"""

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import findings
    from .build import build_report
    from .committed import write_experiment_report, write_run_report
    from .comparison_pages import compare_runs
    from .drawing import canvas, style
    from .findings import links_frame, phase_diagram, topology_figure
    from .fleet_figures import day_figure
    from .run_folder import RunFolder, read_run
    from .sections import sharing
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "RunFolder", "build_report", "canvas", "compare_runs", "day_figure", "findings", "links_frame", "phase_diagram",
    "read_run", "sharing", "style", "topology_figure", "write_experiment_report", "write_run_report",
]  # fmt: skip
