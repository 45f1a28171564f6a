"""`codesign optimize -m ...`: every combination of the listed values, each job one row of a collected frame."""

import argparse
import contextlib
import datetime
import importlib
import os
import pkgutil
import signal
import sys
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import hydra
import pandas as pd
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from ..config import Study, build, compose, conf_dir, own_files, plain, search_path, study_from_resolved
from ..config.composition import admit, combinations, composed
from ..config.groups import PACKAGES, expand
from ..config.least_devices import sized_study
from ..config.plugins import plugin_folders
from ..config.user_files import user_folders
from ..core.atomic_files import make_folder, write_bytes, write_frame, write_text
from ..core.errors import CodesignError, ConfigError, WriteError, suggestion
from ..core.json_yaml import read_yaml, write_yaml
from ..core.untrusted_io import read_text, refuse_changed
from ..model.workloads.base import FamilyVocabulary
from ..report.labels import unit_of, variable
from ..report.run_folder import MANIFEST, WRITTEN, read_run
from .compare import joint_page
from .designs_table import designs_table, shown_columns
from .infeasible import refuse_infeasible
from .optimize import check_study, run_study, trace_once
from .remarks import Explanation, of_table, print_explanations, say_default, say_devices, warn
from .setup import prepare_jax
from .terminal import console, texts

__all__ = ["alone_in"]


# One process at a time in a folder of results: a second one is refused before it writes anything.
#
# The lock is the system's, on the folder itself: it goes with the process, however that ends, and leaves no file.
# Where the system has no such locks (some shared folders, Windows) nobody is refused: files are whole there all the
# same, since each is renamed into place.


@contextlib.contextmanager
def alone_in(folder: Path, key: str) -> Generator[None]:
    """Keep other processes out of a folder, which is made where it is not there yet.

    Args:
        folder: that is written to.
        key: what says where it is, for the message.

    Raises:
        ConfigError: another process writes to it.
        WriteError: it cannot be made.
    """
    made = make_folder(folder)
    number = _locked(folder, key)
    try:
        yield
    except BaseException:
        for one in reversed(made):  # those in which nothing was written
            with contextlib.suppress(OSError):
                one.rmdir()
        raise
    finally:
        if number is not None:
            os.close(number)


def _locked(folder: Path, key: str) -> int | None:
    """An open folder that holds the lock until it is closed; None where the system has none.

    Raises:
        ConfigError: another process holds it.
    """
    if find_spec("fcntl") is None:
        return None
    locks: Any = import_module("fcntl")
    try:
        number = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        locks.flock(number, locks.LOCK_EX | locks.LOCK_NB)
    except BlockingIOError as error:
        os.close(number)
        raise ConfigError(
            f"{key} = {str(folder)!r} is written by another process: wait for it, or name another folder"
        ) from error
    except OSError:
        os.close(number)
        return None
    return number


SWEEP_DIR = "hydra.sweep.dir"


def _by_hydra() -> None:
    """Let Hydra run what `sys.argv` asks for.

    One help text of Hydra 1.3 is an object without `in`; Python 3.14 tries every help when it is given, and refuses it.
    """
    with mock.patch.object(argparse.ArgumentParser, "_check_help", create=True, return_value=None):
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="hydra_jobs")(hydra_job)()


def inform(options: argparse.Namespace) -> int:
    """Print a configuration, or let Hydra print its own settings or how one was put together; nothing runs.

    Hydra knows neither names of earlier releases nor what a choice brings with it (prices, an engine, a pool for
    prompts): the configuration that is printed is the one that would run.

    Raises:
        ConfigError: overrides that no study could take, or a key that the configuration does not have.
    """
    config = compose(options.overrides)
    key = PACKAGES.get(options.package, expand(options.package)) if options.package else ""
    of_hydra = options.info or options.cfg == "hydra" or (options.cfg == "all" and key.partition(".")[0] == "hydra")
    if not of_hydra:
        _print_config(config, key, options)
        if options.cfg == "job" or key:
            return 0
    flags = ["--info", options.info] if options.info else ["--cfg", "hydra"]
    flags += ["--resolve"] if options.resolve else []
    flags += ["--package", key] if key else []
    sys.argv = ["codesign optimize", *flags, *search_path(), *admit(options.overrides)]
    _by_hydra()
    return 0


def _print_config(config: DictConfig, key: str, options: argparse.Namespace) -> None:
    """The part of a configuration below a key, as Hydra would print it.

    Raises:
        ConfigError: nothing does.
    """
    if options.resolve:
        OmegaConf.resolve(config)
    result: object = OmegaConf.select(config, key) if key else config
    if result is None:
        raise ConfigError(f"--package {options.package}: no such key{suggestion(key, map(str, config))}")
    if not OmegaConf.is_config(result):
        print(result)
        return
    print(f"# @package {key}\n" * bool(key) + OmegaConf.to_yaml(result), end="")


def multirun(arguments: list[str], *, explain: bool = False) -> int:
    """Run all jobs and collect the best design of each.

    Hydra composes every job twice and once more the whole; so it runs them itself only where its own settings ask for
    more than one after the other in a folder (`hydra/launcher=joblib`).

    Args:
        arguments: overrides, with lists of values.
        explain: print what the columns of the table mean.

    Returns:
        0, or 2 where a job found no feasible design or was refused.

    Raises:
        ConfigError: an override that no job could take, or a folder that another process writes to.
    """
    overrides = admit(arguments)
    given = [text for text in overrides if text.split("=")[0] == SWEEP_DIR]
    sweep_dir = given[-1] if given else f"{SWEEP_DIR}=multirun/{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}"
    root, ours = Path(sweep_dir.split("=", 1)[1]), [text for text in overrides if text not in given]
    with alone_in(root, SWEEP_DIR):
        return _run_all(arguments, ours, sweep_dir, root, explain=explain)


def _run_all(arguments: list[str], ours: list[str], sweep_dir: str, root: Path, *, explain: bool) -> int:
    """All jobs, in a folder that no other process writes to; returns as `multirun` does."""
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if any(text.lstrip("+~").startswith("hydra") for text in ours):
            _refuse_launcher(ours)
            job_dir = "hydra.sweep.subdir=${hydra.job.num}"
            say_default(arguments)
            sys.argv = ["codesign optimize", "-m", *search_path(), *ours, sweep_dir, job_dir]
            _by_hydra()
        else:
            jobs = combinations(ours)
            say_default(arguments)
            spread(jobs, root)
    except KeyboardInterrupt:  # what earlier jobs found is not lost
        collect_jobs(root)
        raise
    return collect_jobs(root, explain=explain)


def _refuse_launcher(overrides: list[str]) -> None:
    """Hydra says in many lines that it does not know one.

    Raises:
        ConfigError: the launcher, and those that installed packages bring.
    """
    folders = getattr(importlib.import_module("hydra_plugins"), "__path__", ())
    result = [one.name.removeprefix("hydra_") for one in pkgutil.iter_modules(folders)]
    launchers = ["basic", *(name.removesuffix("_launcher") for name in result if name.endswith("_launcher"))]
    for text in overrides:
        key, _, name = text.lstrip("+").partition("=")
        if key == "hydra/launcher" and name not in launchers:
            raise ConfigError(f"{key} = {name} does not exist{suggestion(name, launchers)}")


def spread(jobs: list[list[str]], root: Path) -> None:
    """Jobs one after the other, each with its runner, or, where all have one and the same, each as a task of it.

    Args:
        jobs: overrides of each.
        root: where each leaves a folder of its number.

    Raises:
        ConfigError: a runner that cannot be had.
        CodesignError: a job whose workers were lost; the others' folders are there.
    """
    chosen = [text for text in jobs[0] if _of_runner(text)]
    alike = all([text for text in job if _of_runner(text)] == chosen for job in jobs)
    if not chosen or not alike or len(jobs) == 1:
        for number, overrides in enumerate(jobs):
            job(number, overrides, root / str(number))
        return
    runner = build({"runner": plain(composed(chosen))["runner"]}).objects["runner"]
    runner.refuse()
    work = JobWork(root.resolve(), user_folders())
    tasks = [(number, [text for text in overrides if not _of_runner(text)]) for number, overrides in enumerate(jobs)]
    with closing(runner.results(work, tasks)) as arriving:
        for line in arriving:
            if line is not None:
                print(line, flush=True)


def _of_runner(text: str) -> bool:
    return text.lstrip("+~").partition("=")[0].split(".")[0] == "runner"


@dataclass(frozen=True)
class JobWork:
    """Jobs of one multirun, in whatever process; they leave their folders where all see them.

    Args:
        root: of the folders.
        config_dirs: folders of own files beside ours.
    """

    root: Path
    config_dirs: tuple[Path, ...]

    def __call__(self, task: tuple[int, list[str]]) -> str:
        """Do one job; what is told of it."""
        number, overrides = task
        with own_files(*self.config_dirs):
            return done(number, overrides, self.root / str(number))


def hydra_job(config: DictConfig) -> None:
    """One job that Hydra composed and runs."""
    settings = HydraConfig.get()
    beside = {str(conf_dir()), *map(str, plugin_folders())}
    config_dirs = [
        one.path for one in settings.runtime.config_sources if one.schema == "file" and one.path not in beside
    ]
    with own_files(*config_dirs):  # a process of its own knows of them by Hydra alone
        job(settings.job.num, list(settings.overrides.task), Path(settings.runtime.output_dir), config)


def job(number: int, overrides: list[str], folder: Path, config: DictConfig | None = None) -> None:
    """One job of a multirun, and what is told of it; see `done`."""
    print(done(number, overrides, folder, config), flush=True)


def done(number: int, overrides: list[str], folder: Path, config: DictConfig | None = None) -> str:
    """One job of a multirun in one line; a refused one leaves its message instead of designs.

    Args:
        number: of the job.
        overrides: that make it what it is.
        folder: where it leaves its files.
        config: what they compose to, if that is known.
    """
    prepare_jax()
    make_folder(folder)
    label = f"job {number}: {' '.join(overrides) or 'defaults'}"
    try:
        study = study_from_resolved(composed(overrides) if config is None else config, overrides)
        study, counted = sized_study(study, overrides)
        say_devices(list(study.overrides), study.space, f"{label}: {counted}" if counted else "")
        trace_once(study)
        check_study(study)
        warn(study.unusual)
        if finished(study, overrides, folder):
            return f"{label}: found before"
        (folder / "error.txt").unlink(missing_ok=True)
        write_text(folder / "job.txt", " ".join(overrides))
        result = run_study(study, folder, console(), alone=False)
        if result.interrupted:
            raise KeyboardInterrupt
        refuse_infeasible(study, result.results.best, result.trace.certificate)
        goal = study.objective.goal
        return f"{label}: {goal} {texts(study)(goal, float(result.results.best['objective']))}"
    except WriteError:  # of this job nothing is left, and the next one would fare alike
        raise
    except CodesignError as error:
        write_text(folder / "error.txt", f"{error}\n")
        return f"{label}: {error}"


def finished(study: Study, overrides: list[str], folder: Path) -> bool:
    """True if a multirun that was cut off left this job whole, of the same study: it is not done again."""
    try:
        if not (folder / MANIFEST).is_file() or (folder / "error.txt").is_file():
            return False
        refuse_changed(folder, WRITTEN, MANIFEST)
        same_config = read_text(folder / "config.yaml", "config.yaml") == write_yaml(study.resolved)
        return same_config and read_text(folder / "job.txt", "job.txt") == " ".join(overrides)
    except ConfigError:
        return False


def collect_jobs(root: Path, *, explain: bool = False) -> int:
    """`collected.parquet`: the best design of each job with its overrides, shown as a table and explained if asked."""
    rows, units, failed = list[pd.DataFrame](), dict[str, str](), 0
    folders = sorted((path for path in root.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    for folder in folders:
        failed += (folder / "error.txt").is_file()
        if not (folder / "designs.parquet").is_file():
            continue
        row = pd.read_parquet(folder / "designs.parquet").iloc[[0]]
        variables = read_yaml((folder / "config.yaml").read_text(encoding="utf-8"))["space"]["hardware"]
        variable_entries: dict[str, Any] = variables or {}
        units |= {name: unit_of(entry["path"]) for name, entry in variable_entries.items() if "path" in (entry or {})}
        row.insert(0, "job", int(folder.name))
        row.insert(1, "overrides", (folder / "job.txt").read_text(encoding="utf-8").strip())
        rows.append(row)
    if rows:
        frame = pd.concat(rows, ignore_index=True)
        write_frame(root / "collected.parquet", frame)
        words = read_run(root / str(frame["job"][0])).words
        _show(frame, root, units, words, explain=explain)
        _draw(frame, root, units, words)
        joint_page(root, folders)
    return 2 if failed else 0


def _draw(frame: pd.DataFrame, root: Path, units: dict[str, str], words: FamilyVocabulary) -> None:
    """`phases.png`: how the best design changes along the one number that was varied, if it was one."""
    from ..report.drawing import render, style  # loads matplotlib
    from ..report.findings import phases_of

    objective = read_yaml((root / str(frame["job"][0]) / "config.yaml").read_text(encoding="utf-8"))["objective"]
    with style():
        figure = phases_of(frame, str(objective.get("minimise") or objective.get("maximise")), units, words)
        if figure is not None:
            write_bytes(root / "phases.png", render(figure))
            console().print(f"how the best design changes: {root / 'phases.png'}")


def _show(frame: pd.DataFrame, root: Path, units: dict[str, str], words: FamilyVocabulary, *, explain: bool) -> None:
    out, numbered, shown = console(), frame.assign(rank=frame["job"]), (len(frame), units, (), words)
    out.print(designs_table(numbered, "best design of each job", *shown))
    if explain:
        named = [(one.head, "job" if one.name == "rank" else one.name) for one in shown_columns(numbered, *shown)[0]]
        varied = {variable(name): Explanation(variable(name), f"varied: {name}", unit) for name, unit in units.items()}
        print_explanations(out, of_table(named, numbered.columns, words, varied))
    names = [str(text).split() for text in frame["overrides"]]
    for job_number, mine in zip(frame["job"], names, strict=True):
        varied = [word for word in mine if not all(word in others for others in names)]
        out.print(f"  {job_number}: {' '.join(varied or mine)}", markup=False)
    out.print(
        f"collected: {root / 'collected.parquet'}; the page of a job: codesign report {root / str(frame['job'][0])}"
    )
