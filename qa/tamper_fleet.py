"""Fleet folders changed by somebody who knows the programme, each given to `codesign verify`, which must refuse it.

Other than `tamper.py`, which changes one number, the assignment is solved again after each change, so that solution,
bound and proof are right for what the file then says: boxes of one device, replicas that were never priced away, a
stock that nobody owns, sizes left out, a limit that nobody gave.

    codesign fleet llama31_8b --on l40s,h100_sxm ... && python qa/tamper_fleet.py runs/*_fleet
"""

import argparse
import contextlib
import copy
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codesign import ConfigError
from codesign.commands import main as command
from codesign.search.assignment import AssignmentLimits, DeviceKind, PoolOption, assign

FILE = "fleet.json"
Told = dict[str, Any]


def solved(told: Told) -> Told:
    """The file with fleet, bound and sums of the programme that it now states."""
    own = told["certificate"]
    fields = PoolOption._fields
    options = [PoolOption(**{name: one[name] for name in fields}) for one in own["options"]]
    kinds = [DeviceKind(**kind) for kind in own["kinds"]]
    limits = AssignmentLimits(own["limits"].get("budget", float("inf")), own["limits"].get("power", float("inf")))
    best = assign(own["rates"], options, kinds, limits)
    month = told["usd_per_month"] / own["usd_per_s"]
    own |= {
        "replicas": list(best.replicas), "bought": list(best.bought), "owned": list(best.owned),
        "usd_per_s": best.usd_per_s, "bound": best.bound, "nodes": [list(node) for node in best.nodes],
    }  # fmt: skip
    told["pools"] = [
        {
            "class": options[at].request_class, "kind": options[at].kind, "replicas": count,
            "devices": count * options[at].devices, "devices_per_replica": options[at].devices,
            "plan": own["options"][at]["plan"], "requests_per_s_per_replica": options[at].rate, "requests_per_s": 0.0,
        }
        for at, count in best.pools()
    ]  # fmt: skip
    told |= {"usd_per_month": best.usd_per_s * month, "bound_usd_per_month": best.bound * month, "gap": best.gap}
    told["floor_usd_per_month"] = best.floor * month
    return told


def of_kind(name: str, change: Callable[[Any], Any]) -> Callable[[Told], Told]:
    """Change a number of every kind."""

    def changed(told: Told) -> Told:
        for kind in told["certificate"]["kinds"]:
            kind[name] = change(kind[name])
        return solved(told)

    return changed


def without(keep: Callable[[Any], bool]) -> Callable[[Told], Told]:
    """Leave options out."""

    def changed(told: Told) -> Told:
        told["certificate"]["options"] = [one for one in told["certificate"]["options"] if keep(one)]
        return solved(told)

    return changed


def without_kind(told: Told) -> Told:
    """The fleet's own kind left out: another becomes the cheapest."""
    used, own = told["pools"][0]["kind"], told["certificate"]
    own["kinds"] = [kind for kind in own["kinds"] if kind["name"] != used]
    told["kinds"] = [kind for kind in told["kinds"] if kind["name"] != used]
    own["options"] = [one for one in own["options"] if one["kind"] != used]
    return solved(told)


def slower_class(told: Told) -> Told:
    """Half the rate of every class, wherever it stands."""
    for one in told["classes"]:
        one["rate"] /= 2
        told["certificate"]["rates"][one["name"]] = one["rate"]
    return solved(told)


def lowered(told: Told) -> Told:
    """Rates of one kind halved, as if a replay had lowered them."""
    used = told["pools"][0]["kind"]
    for one in told["certificate"]["options"]:
        if one["kind"] == used:
            one["rate"], one["lowered"] = one["rate"] / 2, one["lowered"] / 2
    return solved(told)


def one_size(told: Told) -> Told:
    """Only the largest replicas, of which the space then says so."""
    own = told["certificate"]
    size = max(one["devices"] for one in own["options"])
    own["options"] = [one for one in own["options"] if one["devices"] == size]
    for shares in own["overrides"].values():
        for texts in shares.values():
            texts[:] = [t if "device_count" not in t else f"+space.plan.device_count=[{size}]" for t in texts]
    return solved(told)


def no_limits(told: Told) -> Told:
    """Neither budget nor power, or a budget that nobody gave."""
    own = told["certificate"]
    own["limits"] = {} if own["limits"] else {"budget": 1e9}
    return solved(told)


def scaled(told: Told) -> Told:
    """Sums of a month halved."""
    return told | {"usd_per_month": told["usd_per_month"] / 2, "bound_usd_per_month": told["bound_usd_per_month"] / 2}


def of_top(name: str, change: Callable[[Any], Any]) -> Callable[[Told], Told]:
    """Change a number that is shown."""
    return lambda told: told | {name: change(told[name])}


def alone(told: Told) -> Told:
    """All on one kind alone costs ten times as much."""
    for kind in told["kinds"]:
        kind["alone_usd_per_month"] = 10 * (kind["alone_usd_per_month"] or 1.0)
    return told


def shown_kind(name: str) -> Callable[[Told], Told]:
    """A number of the table of devices."""

    def changed(told: Told) -> Told:
        for kind in told["kinds"]:
            kind[name] = kind[name] * 2 + 8
        return told

    return changed


def tighter(told: Told) -> Told:
    """Limits of latency that are tighter than what was priced."""
    for one in told["classes"]:
        one["ttft_s"] /= 2
        one["tpot_s"] /= 2
    return told


CHANGES: dict[str, Callable[[Told], Told]] = {
    "boxes of one device": of_kind("box", lambda box: 1),
    "half the watts": of_kind("watts", lambda watts: watts / 2),
    "more boxes owned": of_kind("owned_boxes", lambda boxes: boxes + 3),
    "owned ones cost": of_kind("owned_usd_per_s", lambda usd: usd + 1e-4),
    "held for half": of_kind("held_usd_per_s", lambda usd: usd / 2),
    "no boxes for sale": of_kind("most_boxes", lambda boxes: 5),
    "capital halved": of_kind("capex_usd", lambda usd: usd / 2),
    "sizes of one device left out": without(lambda one: one["devices"] > 1),
    "a kind left out": without_kind,
    "half the load": slower_class,
    "rates lowered by no replay": lowered,
    "one size alone": one_size,
    "other limits": no_limits,
    "sums of a month halved": scaled,
    "floor at the cost": lambda told: told | {"floor_usd_per_month": told["usd_per_month"]},
    "gap of 0": of_top("gap", lambda gap: gap - 0.01),
    "other plans counted": of_top("plans", lambda count: 10 * count),
    "all on one kind dearer": alone,
    "devices bought": shown_kind("bought"),
    "capital shown": shown_kind("capex"),
    "limits tighter than priced": tighter,
}


def verified(told: Told) -> tuple[int, str]:
    """Exit code and last line of `codesign verify` of a changed file."""
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where) / "fleet"
        folder.mkdir()
        (folder / FILE).write_text(json.dumps(told, indent=2))
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = command(["verify", str(folder), "--attack", "16"])
        lines = out.getvalue().strip().splitlines()
        shutil.rmtree(folder)
    return code, " ".join(lines)[-240:]


def main() -> int:
    """Change each folder in every way; 1 where a change was accepted, or the folder itself refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--only", default="", help="changes with these words alone")
    given = parser.parse_args()
    wrong = tried = 0
    for run in given.runs:
        told = json.loads((run / FILE).read_text())
        code, line = verified(told)
        print(f"{'as it is' if not code else 'REFUSED'}: {run}: {line}", flush=True)
        wrong += bool(code)
        for name, change in CHANGES.items():
            if given.only not in name:
                continue
            try:
                changed = change(copy.deepcopy(told))
            except ConfigError as error:
                print(f"  none     {name}: {error}", flush=True)
                continue
            if changed == told:
                continue
            code, line = verified(changed)
            tried, wrong = tried + 1, wrong + (not code)
            print(f"  {'refused ' if code else 'ACCEPTED'} {name}: {line}", flush=True)
    print(f"{tried} changes, {wrong} wrong answers")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
