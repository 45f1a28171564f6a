"""Reports: one page for a run, one Markdown page for a reproduced experiment, and the figures of both.

Tables and figures come from the run folder alone: no search, no JAX. The menu is lazy: who asks for words and units
alone draws nothing.
"""

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import findings as findings
    from .build import build_report as build_report
    from .committed import write_experiment_report as write_experiment_report
    from .committed import write_run_report as write_run_report
    from .drawing import canvas as canvas
    from .drawing import style as style
    from .findings import phase_diagram as phase_diagram
    from .fleet_figures import day_figure as day_figure
    from .run_folder import RunFolder as RunFolder
    from .run_folder import read_run as read_run
    from .sections import sharing as sharing
    from .topology import links_frame as links_frame
    from .topology import topology_figure as topology_figure
    from .two_runs import compare_runs as compare_runs
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "build": ("build_report",),
            "committed": (
                "write_run_report",
                "write_experiment_report",
            ),
            "drawing": (
                "canvas",
                "style",
            ),
            "sections": ("sharing",),
            "findings": ("phase_diagram",),
            "fleet_figures": ("day_figure",),
            "run_folder": (
                "RunFolder",
                "read_run",
            ),
            "topology": (
                "links_frame",
                "topology_figure",
            ),
            "two_runs": ("compare_runs",),
        },
        modules=("findings",),
    )

__all__ = [
    "RunFolder", "build_report", "canvas", "compare_runs", "day_figure", "findings", "links_frame", "phase_diagram",
    "read_run", "sharing", "style", "topology_figure", "write_experiment_report", "write_run_report",
]  # fmt: skip
