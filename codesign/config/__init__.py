"""From YAML to objects: compose a configuration, build it, refuse what is wrong with it in one line.

Only this package and `commands` know Hydra. The menu is lazy: `codesign list` reads `conf/` without JAX.
"""

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from .checks import check_formats as check_formats
    from .checks import check_memory as check_memory
    from .checks import check_plan as check_plan
    from .composition import compose as compose
    from .construct import Built as Built
    from .construct import build as build
    from .groups import available as available
    from .groups import conf_dir as conf_dir
    from .groups import search_path as search_path
    from .own import own_files as own_files
    from .parts_built import plain as plain
    from .study import Study as Study
    from .study import scenario_from_config as scenario_from_config
    from .study import study_from_config as study_from_config
    from .study import study_from_resolved as study_from_resolved
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "checks": ("check_formats", "check_memory", "check_plan"),
            "composition": ("compose",),
            "construct": ("Built", "build"),
            "groups": ("available", "conf_dir", "search_path"),
            "own": ("own_files",),
            "parts_built": ("plain",),
            "study": ("Study", "scenario_from_config", "study_from_config", "study_from_resolved"),
        },
    )

__all__ = [
    "Built", "Study", "available", "build", "check_formats", "check_memory", "check_plan", "compose", "conf_dir",
    "own_files", "plain", "scenario_from_config", "search_path", "study_from_config", "study_from_resolved",
]  # fmt: skip
