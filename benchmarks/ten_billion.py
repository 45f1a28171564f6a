"""Ten thousand million points of the default study, end to end: wall, CPU seconds, memory of all processes together.

    nice -n 19 python benchmarks/ten_billion.py OUT                   10^10 points, one process for each core
    python benchmarks/ten_billion.py OUT --levels 20 --workers 1      fewer points

The command that a user types is run in OUT and looked at from outside, once a second. Killed or interrupted, the same
command goes on with the chunks that are there.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VARIABLES = ("scale_up_bandwidth", "scale_out_bandwidth", "hbm_to_ddr")
LOOK_S = 1.0


def tree(root: int) -> list[int]:
    """A process and all that it started."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parent = int((path / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(path.name))
    result = [root]
    for pid in result:
        result += parents.get(pid, [])
    return result


def memory(pids: list[int]) -> int:
    """Bytes that these processes hold together; what they share is counted once (proportional set size)."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--levels", type=int, default=90)
    options.add_argument("--workers", type=int, default=0)
    given = options.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    earlier = [run for run in sorted((given.out / "runs").glob("*")) if (run / "chunks").is_dir()]
    words = [f"space.hardware.{name}.grid={given.levels}" for name in VARIABLES]
    words += ["search=grid", "runner=local", f"workers={given.workers}", "runner.chunk_s=20"]
    words += [f"search.resume={earlier[-1].relative_to(given.out)}"] if earlier else []
    command = [sys.executable, "-m", "codesign", "optimize", *words]
    before, began, most, loads = os.times(), time.perf_counter(), 0, []
    with open(given.out / "log.txt", "a", encoding="utf-8") as log:
        process = subprocess.Popen(
            command, cwd=given.out, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
        while process.poll() is None:
            most = max(most, memory(tree(process.pid)))
            loads.append(os.getloadavg()[0])
            time.sleep(LOOK_S)
    wall, after = time.perf_counter() - began, os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    run = max((given.out / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    counts = json.loads((run / "summary.json").read_text(encoding="utf-8")).get("counts", {})
    counts = {
        name: counts[name] for name in ("plans", "points", "feasible", "points from earlier chunks") if name in counts
    }
    print(f"exit code {process.returncode}; {counts}")
    load = f"load {min(loads):.1f} to {max(loads):.1f}" if loads else ""
    print(f"{wall:.0f} s of wall, {cpu_s:.0f} CPU s, most memory {most / 1e9:.2f} GB of all processes together, {load}")
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
