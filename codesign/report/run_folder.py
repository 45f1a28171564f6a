"""A run folder as the search left it: read once, checked at the edge, never written to by what shows it."""

import contextlib
import functools
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from ..core.atomic_files import write_text
from ..core.earlier_names import current_frame, migrated, migrated_config, schema_of
from ..core.errors import ConfigError
from ..core.json_yaml import dumps
from ..core.untrusted_io import read_frame, read_json, read_text, read_yaml_file, refuse_changed, written
from ..model.workloads.base import SERVING, TRAINING, FamilyVocabulary
from ..search.certificate import Certificate
from .labels import COLOURS, Metric, counted, metric, unit_of, variable

CHECKPOINT, CHUNKS = "grid_checkpoint.npz", "chunks"  # of a grid that was cut off: in one pass, or by a runner
MANIFEST = "written.json"  # checksums of what the run wrote
CONF = "conf"  # copies of the user's own files that the study was composed with
WRITTEN = (
    "config.yaml", "overrides.txt", "versions.json", "unusual.json", "summary.json", "designs.parquet",
    "pareto.parquet", "ops.parquet", "elasticities.parquet", "links.parquet",
)  # fmt: skip
BESIDE = ("prefill_devices", "ffn_devices")  # fields of a plan that count accelerators of pools
REQUIRED = ("config.yaml", "designs.parquet")
PAGE = "report.html"
READ = (".parquet", ".json", ".yaml", ".txt")  # endings of what a run is read from
PLAN_PREFIX = "var."


class MissingPart(Exception):
    """A section cannot be shown; the message says what the folder lacks."""


@dataclass(frozen=True)
class RunFolder:
    """Run folder of one search. Optional parts are empty where the folder lacks them.

    designs: one row per kept design, best first. ops, elasticities and links (of routed
        topologies) belong to the best design.
    """

    path: Path
    config: dict[str, Any]
    designs: pd.DataFrame
    pareto: pd.DataFrame = field(default_factory=pd.DataFrame)
    ops: pd.DataFrame = field(default_factory=pd.DataFrame)
    elasticities: pd.DataFrame = field(default_factory=pd.DataFrame)
    links: pd.DataFrame = field(default_factory=pd.DataFrame)
    summary: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    unusual: tuple[str, ...] = ()

    @property
    def conf(self) -> tuple[Path, ...]:
        """The folder with copies of own files, for whoever composes the study once more; none where it used none.

        Raises:
            ConfigError: a file is missing or was changed; names it.
        """
        return copied_conf(self.path)

    @property
    def schema(self) -> int:
        """Schema that the folder was written by."""
        return schema_of(self.versions, repr(str(self.path)))

    @property
    def certificate(self) -> Certificate | None:
        """Certificate of the search; None where it can prove nothing.

        Raises:
            ConfigError: the summary's cannot be read.
        """
        result = self.summary.get("certificate")
        return Certificate.from_json(result) if result else None

    @functools.cached_property
    def best(self) -> dict[str, Any]:
        """The best design: column -> value."""
        return {str(key): value for key, value in self.designs.iloc[0].to_dict().items()}

    @property
    def is_serving(self) -> bool:
        """True if requests are served (the designs have times to and per token)."""
        return "tpot_s" in self.designs and bool(self.designs["tpot_s"].notna().any())

    @property
    def goal(self) -> str:
        """Name of the metric that was optimised."""
        wanted = self.summary.get("objective", self.config.get("objective", {}))
        if isinstance(wanted, dict):
            wanted = wanted.get("minimise") or wanted.get("maximise") or wanted.get("goal") or "time_s"
        return str(wanted)

    @functools.cached_property
    def words(self) -> FamilyVocabulary:
        """Words of the family of workloads; of a folder that does not say, what its numbers tell."""
        stored = self.summary.get("words")
        if isinstance(stored, dict):
            return FamilyVocabulary.from_json(stored)
        if self.is_serving:
            return SERVING
        item = "sample" if any(name.startswith("lookup") for name in self.columns("breakdown_s.")) else "token"
        trained = "Training" in str(self.setting("workload._target_") or "Training")
        return replace(TRAINING, item=item) if trained else FamilyVocabulary("serving", item=item)

    def labels(self, fixed_labels: dict[str, tuple[str, str]], others: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """(label, colour) of parts of a bar, those that the family of workloads names among them."""
        return fixed_labels | {
            name: (label, COLOURS[at % len(COLOURS)]) for at, (name, label) in enumerate(others.items())
        }

    def counted(self, text: str) -> str:
        """Words about tokens as words about what the job counts."""
        return counted(text, self.words.item)

    def metric(self, name: str) -> Metric:
        """Label and unit of a metric of this run, or of a hardware variable of its space."""
        if PLAN_PREFIX + name in self.designs:
            return Metric(variable(name), self.unit(name))
        return metric(name, self.words)

    def unit(self, name: str) -> str:
        """The unit of a hardware variable: that of the leaf it moves; a ratio has none."""
        path = self.setting(f"space.hardware.{name}.path")
        if self.setting(f"space.hardware.{name}.numerator"):
            return ""
        return unit_of(str(path)) if path else unit_of(f"x_{name}")

    @property
    def maximised(self) -> bool:
        """True if more of the goal is better."""
        for source in (self.summary.get("objective"), self.config.get("objective")):
            if isinstance(source, dict):
                return bool(source.get("maximise"))
        return False

    @property
    def device_count(self) -> float | None:
        """Accelerators of the best design, those of its pools among them."""
        result = self.devices_of(self.best)
        return None if result is None else float(result)

    @property
    def pool_count(self) -> float:
        """Accelerators of the best design's pools beside those that decode."""
        return float(sum(self.best.get(f"var.{name}", self.setting(f"plan.{name}") or 0.0) for name in BESIDE))

    def devices_of(self, rows: Any) -> Any:
        """Accelerators of a design, or of each row of a frame: designs may buy different numbers; None where unsaid."""
        count = rows.get("var.device_count", self.setting("cluster.device_count"))
        pools = [rows.get(f"var.{name}", self.setting(f"plan.{name}") or 0.0) for name in BESIDE]
        return None if count is None else sum(pools, count)

    @property
    def varied_paths(self) -> set[str]:
        """Dotted paths of the leaves that the study chose: its hardware variables and the number of devices."""
        paths = {"cluster.device_count"}
        for entry in (self.setting("space.hardware") or {}).values():
            paths |= {str(entry[key]) for key in ("path", "numerator") if key in entry}
            paths |= {str(path) for path in entry.get("tied") or ()}
        return paths

    def setting(self, path: str) -> Any:
        """A value of the resolved configuration by dotted path; None where there is none."""
        node: Any = self.config
        for key in path.split("."):
            if not isinstance(node, dict) or key not in node:
                return None
            node = node[key]
        return node

    def columns(self, prefix: str) -> list[str]:
        """Names after `prefix` of the columns that have it, in the frame's order."""
        return [str(column)[len(prefix) :] for column in self.designs if str(column).startswith(prefix)]

    def require(self, frame: str, *columns: str) -> pd.DataFrame:
        """One of the frames, with these columns.

        Raises:
            MissingPart: the file is absent or empty, or lacks a column.
        """
        table: pd.DataFrame = getattr(self, frame)
        if table.empty:
            raise MissingPart(f"{frame}.parquet is absent or empty")
        absent = [column for column in columns if column not in table]
        if absent:
            raise MissingPart(f"{frame}.parquet has no column {', '.join(absent)}")
        return table


def noted_names(path: Path) -> list[str]:
    """Files of a folder that a run is read from, those of its certificate and of the user's own among them."""
    every = (file.relative_to(path).as_posix() for file in path.rglob("*") if file.suffix in READ and file.is_file())
    return sorted(name for name in every if name != MANIFEST and not name.startswith(f"{CHUNKS}/"))


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Whatever a damaged field brings about, in one line.

    Raises:
        ConfigError: a field is missing, of another kind, or holds what it cannot.
    """
    try:
        yield
    except (AttributeError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        what = str(error).strip().splitlines() or [""]
        raise ConfigError(f"{str(path)!r} has a damaged field: {type(error).__name__} {what[0]}") from error


def note_page(path: Path) -> None:
    """Keep the checksum of a page that was built, beside those of the files that it was built of."""
    _note(path, [PAGE])


def note_folder(path: Path, folder: str) -> None:
    """Keep the checksums of a folder below a run's, which a later command wrote, beside those of the run itself."""
    _note(path, [name for name in noted_names(path) if name.startswith(f"{folder}/")])


def _note(path: Path, names: list[str]) -> None:
    noted = _optional(path / MANIFEST, read_json)
    if noted:
        write_text(path / MANIFEST, dumps(noted | written(path, names), indent=1))


def copied_conf(path: Path) -> tuple[Path, ...]:
    """Folders of own files that a run keeps, without reading the run.

    Raises:
        ConfigError: a file is missing or was changed; names it.
    """
    noted = _optional(path / MANIFEST, read_json)
    names = [name for name in noted if name.startswith(f"{CONF}/")]
    for name in names:
        if not (path / name).is_file():
            raise ConfigError(f"{str(path / name)!r} is missing: the run was composed with it")
    refuse_changed(path, names, MANIFEST)
    return (path / CONF,) if (path / CONF).is_dir() else ()


def _newest(under: Path = Path("runs")) -> str:
    """Hint at what could have been meant: the folder that was written last."""
    run_folders = [folder for folder in under.glob("*") if (folder / REQUIRED[0]).is_file()]
    if not run_folders:
        return "`codesign optimize` writes one into runs/"
    return f"the newest here is {str(max(run_folders, key=lambda folder: folder.stat().st_mtime))!r}"


def read_run(path: Path | str) -> RunFolder:
    """Read the folder that `codesign optimize` leaves.

    Raises:
        ConfigError: not a folder, not a run, or a file that cannot be read; names what is missing.
    """
    path = Path(path)
    if not path.is_dir():
        raise ConfigError(f"run {str(path)!r} is not a folder; {_newest()}")
    absent = [name for name in REQUIRED if not (path / name).is_file()]
    if absent == ["designs.parquet"]:
        raise ConfigError(_unfinished(path))
    if absent and (path / "0" / "config.yaml").is_file():
        raise ConfigError(f"{str(path)!r} is a multirun: name the folder of a job, such as {str(path / '0')!r}")
    if absent:
        raise ConfigError(f"{str(path)!r} is not a run of `codesign optimize`: it has no {' and no '.join(absent)}")
    refuse_changed(path, WRITTEN, MANIFEST)
    with readable(path):
        return _read(path)


def _read(path: Path) -> RunFolder:
    versions = _optional(path / "versions.json", read_json)
    schema = schema_of(versions, repr(str(path)))
    designs = current_frame(_frame(path / "designs.parquet"), schema)
    if designs.empty or "time_s" not in designs:
        lack = "no design" if designs.empty else "no column time_s"
        raise ConfigError(f"{str(path / 'designs.parquet')!r} has {lack}: nothing to report")
    summary = migrated(_optional(path / "summary.json", read_json), schema)
    for key in ("certificate", "limits", "floors", "counts"):
        if not isinstance(summary.get(key) or {}, dict):
            raise ConfigError(f"{str(path / 'summary.json')!r}: {key} should be a mapping of names to values")
    if "rank" in designs:
        designs = designs.sort_values("rank", kind="stable")
    return RunFolder(
        path=path,
        config=migrated_config(_optional(path / "config.yaml", read_yaml_file), schema),
        designs=designs.reset_index(drop=True),
        pareto=current_frame(_optional_frame(path / "pareto.parquet"), schema),
        ops=current_frame(_optional_frame(path / "ops.parquet"), schema),
        elasticities=current_frame(_optional_frame(path / "elasticities.parquet"), schema),
        links=current_frame(_optional_frame(path / "links.parquet"), schema),
        summary=summary,
        versions=versions,
        overrides=_overrides(path / "overrides.txt"),
        unusual=_unusual(path / "unusual.json"),
    )


def _unfinished(path: Path) -> str:
    """Hint at what to do about a run whose search never came to its end."""
    overrides = [text for text in _overrides(path / "overrides.txt") if not text.startswith("search.resume=")]
    conf = [word for folder in copied_conf(path) for word in ("--conf", str(folder))]
    again = " ".join(["codesign optimize", *map(shlex.quote, [*conf, *overrides])])
    if (path / CHECKPOINT).is_file() or any((path / CHUNKS).glob("*.parquet")):
        again += f" search.resume={path}"
        return f"the search of {str(path)!r} did not finish; its grid continues where it was with `{again}`"
    return f"the search of {str(path)!r} did not finish and left no design; repeat it with `{again}`"


def _frame(path: Path) -> pd.DataFrame:
    return read_frame(path, f"{str(path)!r}")


def _optional_frame(path: Path) -> pd.DataFrame:
    return _frame(path) if path.is_file() else pd.DataFrame()


def _optional(path: Path, read: Callable[[Path, str], Any]) -> dict[str, Any]:
    if not path.is_file():
        return {}
    result = read(path, f"{str(path)!r}")
    if not isinstance(result, dict):
        raise ConfigError(f"{str(path)!r} should hold a mapping of names to values")
    return result


def _unusual(path: Path) -> tuple[str, ...]:
    """Lines about numbers of the study that no product or paper has."""
    if not path.is_file():
        return ()
    listed = read_json(path, f"{str(path)!r}")
    try:
        return tuple(str(entry["text"]) for entry in listed)
    except (TypeError, KeyError) as error:
        raise ConfigError(f"{str(path)!r} cannot be read as a list of texts") from error


def _overrides(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        return ()
    text = read_text(path, f"{str(path)!r}")
    return tuple(line.strip() for line in text.splitlines() if line.strip())
