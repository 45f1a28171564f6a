"""From YAML to objects: compose a configuration, build it, refuse what is wrong with it in one line.

Only this package and `commands` know Hydra. The menu is lazy: `codesign list` reads `conf/` without JAX.
"""

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from .checks import check_formats, check_memory, check_plan
    from .composition import compose
    from .construct import Construction, build
    from .groups import available, conf_dir, search_path
    from .parts_built import plain
    from .study import Study, scenario_from_config, study_from_config, study_from_resolved
    from .user_files import own_files
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "Construction", "Study", "available", "build", "check_formats", "check_memory", "check_plan", "compose", "conf_dir",
    "own_files", "plain", "scenario_from_config", "search_path", "study_from_config", "study_from_resolved",
]  # fmt: skip
