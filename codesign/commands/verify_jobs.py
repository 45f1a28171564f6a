"""`codesign verify` of a multirun or a comparison: the proof of every job, and the joint table against its jobs."""

from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from ..config import study_from_config
from ..core.disk_cache import keep_in
from ..core.errors import ConfigError
from ..core.fields import replace
from ..core.free_memory import give_back
from ..core.json_yaml import dumps
from ..core.untrusted_io import read_frame, read_json
from ..model.scenario import Scenario
from ..report.run_folder import read_run
from ..search.results import numbers_of
from ..study.objective import feasible
from ..verification import Refuted, check_assignment
from .fleet_classes import FleetClass
from .fleet_options import BLOCK, kept_rates, numbers_at_once, placed
from .setup import prepare_jax
from .terminal import console
from .told_anew import SAME
from .verify import verify_run

__all__ = ["FLEET_FILE", "differences"]


# `codesign verify` of a fleet: its assignment in exact fractions, its options priced anew, and other plans tried.


FLEET_FILE = "fleet.json"
ATTACK = 64  # plans of each class on each kind that are tried

SAME_OPTIONS = 1e-9  # relative

FIELDS = (
    "name", "rate", "input", "output", "ttft_s", "tpot_s", "attainment", "cv", "input_cv", "output_cv", "cached",
)  # fmt: skip


def verify_fleet(folder: Path, attack: int | None, seed: int, *, as_json: bool = False) -> int:
    """Check a fleet's folder and print the answer: 0 where nothing that it states is false, 1 where something is.

    Args:
        folder: that `codesign fleet` wrote.
        attack: plans of each class on each kind to try.
        seed: of these.
        as_json: print the answer as JSON.

    Raises:
        ConfigError: a file that cannot be read, or a count that is none.
    """
    count = ATTACK if attack is None else attack
    if not 0 <= count <= BLOCK:
        raise ConfigError(f"--attack {count}: the number of plans to try is from 0 to {BLOCK:,}")
    told = read_json(folder / FLEET_FILE, f"fleet {str(folder)!r}")
    prepare_jax()
    keep_in(None)  # priced anew, by no program that the search kept
    checks: list[str] = []
    try:
        stated = told["certificate"]
        checks += check_assignment(stated)
        checks += _check_shown(told)
        checks += _check_options(told, count, seed)
        line, verified = "verified: no fleet of these options is cheaper within the stated gap", True
    except Refuted as error:
        line, verified = f"not verified: {error}", False
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        line, verified = f"not verified: {FLEET_FILE} cannot be read ({type(error).__name__})", False
    if as_json:
        print(dumps({"verified": verified, "answer": line, "checks": checks}, indent=2))
    else:
        out = console()
        for text in checks:
            out.print(f"  {text}", soft_wrap=True)
        out.print(line, soft_wrap=True)
    return 0 if verified else 1


def _check_shown(summary: Mapping[str, Any]) -> list[str]:
    """Pools and sums that are shown are those of the certificate.

    Raises:
        Refuted: naming what is not.
    """
    stated = summary["certificate"]
    used = [(one, n) for one, n in zip(stated["options"], stated["replicas"], strict=True) if n]
    if [(pool["class"], pool["kind"], pool["replicas"], pool["plan"]) for pool in summary["pools"]] != [
        (one["request_class"], one["kind"], n, one["plan"]) for one, n in used
    ]:
        raise Refuted("the pools that are shown are not those of the certificate")
    months = float(summary["usd_per_month"]) / float(stated["usd_per_s"])
    if abs(float(summary["bound_usd_per_month"]) / (float(stated["bound"]) * months) - 1) > SAME_OPTIONS:
        raise Refuted("the bound that is shown is not that of the certificate")
    if {one["name"]: one["rate"] for one in summary["classes"]} != stated["rates"]:
        raise Refuted("the classes that are shown are not those of the certificate")
    return [f"{len(used)} pools and their cost are as shown"]


def _check_options(summary: Mapping[str, Any], count: int, seed: int) -> list[str]:
    """Rates and costs of options are the model's, and no other plan of a size that is tried serves more.

    Raises:
        Refuted: naming the option that is not so.
    """
    stated, chance = summary["certificate"], float(summary["confidence"])
    classes = {one["name"]: FleetClass(**{name: one[name] for name in FIELDS}) for one in summary["classes"]}
    kinds = {kind["name"]: kind for kind in stated["kinds"]}
    rng, tried, worst = np.random.default_rng(seed), 0, 0.0
    for kind in kinds:
        for name, one in classes.items():
            study = study_from_config(*stated["overrides"][kind][str(one.attainment)])
            scenario = replace(study.scenario, one.leaves)
            own = [each for each in stated["options"] if (each["kind"], each["request_class"]) == (kind, name)]
            for option in own:
                numbers = numbers_of(placed(scenario, option["plan"]))
                worst = max(worst, _check_option(option, numbers, kinds[kind], chance))
            if chance and own:
                _check_chances(own, scenario, chance)
            plans = study.space.settled(scenario).plans(scenario)
            places = rng.choice(len(plans["tp"]), min(count, len(plans["tp"])), replace=False)
            rows = [{field: float(values[place]) for field, values in plans.items()} for place in places]
            dense = [row for row in rows if row.get("ep", 1) > 1 or row["tp"] * row["pp"] == row["device_count"]]
            if not dense:
                continue
            objective = study.objective
            excess, rate = numbers_at_once(
                [placed(scenario, row) for row in dense],
                lambda account, objective=objective: [
                    objective.excess(account.metrics), account.metrics.extra["requests_per_s"]
                ],
            )  # fmt: skip
            best = {each["devices"]: float(each["rate"]) / float(each["lowered"]) for each in own}
            tried += len(dense)
            for row, over, good in zip(dense, excess, rate, strict=True):
                size = round(row["device_count"])
                if not chance and feasible(over) and good > best.get(size, 0.0) * (1 + SAME_OPTIONS):
                    raise Refuted(
                        f"{name} on {kind}: a plan of {size} devices serves {good:.6g} requests/s, the option of that"
                        f" size {best.get(size, 0.0):.6g}"
                    )
    lines = [
        f"{len(stated['options'])} options priced anew: rates and electricity agree within {max(worst, 1e-12):.0e}"
    ]
    more = "with a confidence, only the fastest at the centre were compared" if chance else "none serves more"
    return [*lines, f"{tried} other plans tried: {more} than the option of its size" if not chance else more]


def _check_chances(own: Sequence[Mapping[str, Any]], scenario: Scenario, chance: float) -> None:
    """Rates of a class's options on a kind are those kept in the stated share of the draws.

    Raises:
        Refuted: naming the option whose rate is another one.
    """
    plans = [dict[str, float](option["plan"]) for option in own]
    centre = np.asarray([numbers_of(placed(scenario, plan))["requests_per_s"] for plan in plans])
    for option, rate in zip(own, kept_rates(scenario, plans, centre, chance), strict=True):
        if abs(float(option["rate"]) - rate * float(option["lowered"])) > SAME_OPTIONS * float(option["rate"]):
            raise Refuted(
                f"{option['request_class']} on {option['kind']}, {option['devices']} devices: {option['rate']:.9g}"
                f" requests/s are stated, the draws say {rate * float(option['lowered']):.9g} in {chance:.0%} of them"
            )


def _check_option(
    option: Mapping[str, Any], numbers: Mapping[str, float], kind: Mapping[str, Any], chance: float
) -> float:
    """Relative difference of an option's numbers.

    Raises:
        Refuted: it is more than rounding.
    """
    what = f"{option['request_class']} on {option['kind']}, {option['devices']} devices"
    rate, stated = numbers["requests_per_s"] * float(option["lowered"]), float(option["rate"])
    if not 0 < float(option["lowered"]) <= 1:
        raise Refuted(f"{what}: a replay lowers a rate to a share of it, not to {option['lowered']}")
    if (stated > rate * (1 + SAME_OPTIONS)) if chance else abs(stated / rate - 1) > SAME_OPTIONS:
        raise Refuted(f"{what}: {stated:.9g} requests/s are stated, the model says {rate:.9g}")
    usd = numbers["usd_per_million_tokens"] * numbers["tokens_per_s"] / 1e6
    devices = float(option["devices"])
    whole = float(option["usd_per_s"]) + devices * float(kind["held_usd_per_s"])
    if abs(whole / usd - 1) > SAME_OPTIONS:
        raise Refuted(f"{what}: {whole:.9g} dollars a second are stated, the model says {usd:.9g}")
    if abs(float(kind["capex_usd"]) * devices / numbers["capex_usd"] - 1) > SAME_OPTIONS:
        raise Refuted(f"{what}: the capital of a device is not the model's")
    return max(abs(whole / usd - 1), 0.0 if chance else abs(stated / rate - 1))


TABLES = {"comparison.parquet": "run", "collected.parquet": "job"}
"""Joint table -> its column with the number of the job."""
CONFIG, FAILED = "config.yaml", "error.txt"


def verify_folder(run: str, attack: int | None, seed: int, *, as_json: bool = False) -> int:
    """Verify a run folder, or every job of a multirun or of a comparison.

    Args:
        run: the folder.
        attack: designs to try of each job; None: as many as the time of its search allows.
        seed: of these.
        as_json: print the answers as JSON: a document a job, then one of the whole.

    Returns:
        Exit code: 0 where nothing that is claimed is false, 1 where something is.

    Raises:
        ConfigError: see `verify_run`; or no job has a design.
    """
    root = Path(run)
    if (root / FLEET_FILE).is_file():
        return verify_fleet(root, attack, seed, as_json=as_json)
    if (root / CONFIG).is_file() or not (root / "0").is_dir():
        return verify_run(run, attack, seed, as_json=as_json)
    folders = sorted((path for path in root.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    jobs = [folder for folder in folders if (folder / CONFIG).is_file()]
    if not jobs:
        raise ConfigError(f"{run!r} has no job with a design: each says why in its {FAILED}")
    worst, refused = 0, 0
    for folder in jobs:
        if not as_json:
            print(f"job {folder.name}: {(folder / 'job.txt').read_text(encoding='utf-8').strip()}", flush=True)
        code = verify_run(str(folder), attack, seed, as_json=as_json)
        give_back(cycles=True)
        worst, refused = max(worst, code), refused + (code > 0)
    wrong = [text for name in TABLES for text in differences(root, name)]
    line = f"verified: {len(jobs) - refused} of {len(jobs)} jobs"
    if wrong:
        line = f"not verified: {wrong[0]}"
    elif refused:
        line = f"not {line}"
    checked = [name for name in TABLES if (root / name).is_file()]
    if as_json:
        print(dumps({"verified": not (wrong or worst), "answer": line, "tables": checked}, indent=2))
    else:
        if checked:
            print(
                f"- {' and '.join(checked)} as the jobs' designs; "
                "not checked: chances to win, prices, the joint page, the slide"
            )
        print(line)
    return 1 if wrong else worst


def differences(root: Path, name: str) -> list[str]:
    """Numbers of a joint table that are not those of a job's best design or proof, a line each."""
    if not (root / name).is_file():
        return []
    result: list[str] = []
    for row in read_frame(root / name, repr(str(root / name))).to_dict("records"):
        number = row.get(TABLES[name])
        if not str(number).isdigit():
            if row.get("feasible"):
                result.append(f"{name}: a design of no job, run {number!r}")
            continue
        folder = root / str(number)
        if not (folder / CONFIG).is_file():
            result.append(f"{name}: job {number} has no run")
            continue
        run = read_run(folder)
        own: dict[str, Any] = {**run.best, "overrides": (folder / "job.txt").read_text(encoding="utf-8").strip()}
        if run.certificate is not None:
            own |= {"bound": run.certificate.bound, "certified": run.certificate.certified, "gap": run.certificate.gap}
        for key, value in row.items():
            if key in own and not _same(value, own[str(key)]):
                result.append(f"{name}: job {number}: {key} is {value!r}, its run has {own[str(key)]!r}")
    return result


def _same(value: object, own: object) -> bool:
    """True if two entries are equal: numbers up to rounding, an absent one as None or not a number."""
    if isinstance(value, Real) and isinstance(own, Real):
        return bool(np.isclose(float(value), float(own), rtol=SAME, atol=0.0, equal_nan=True))
    if value is None or own is None:
        return all(one is None or one != one for one in (value, own))
    if any(isinstance(one, np.ndarray) for one in (value, own)):
        return bool(np.array_equal(np.asarray(value), np.asarray(own)))
    return dumps(value) == dumps(own)
