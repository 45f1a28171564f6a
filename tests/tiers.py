"""Tiers of the tests: `slow` tests run in `sh run.sh test all` alone, and a test that takes long must say that it does.

The CPU time of a test is that of its process and of the processes that it waited for, fixtures that it is the first to
use included. It is measured in seconds of a reference machine, which runs `yardstick` in `REFERENCE_S`: a busy or slow
machine fails no test.
"""

import contextlib
import csv
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

SLOW_S = 1.5
"""CPU seconds above which a test is `slow`."""
TOLERANCE = 5.0
"""How many times over `SLOW_S` an unmarked test fails the run. What several tests share (a trace, a compilation, a run
that a fixture makes) is charged to the first of them in its worker, and who is first depends on the order."""
REFERENCE_S = 0.022
MARK = "slow"
EXPERIMENTS = ("codesign_175b", "serve_llama31_405b", "photonic_rack")
"""Experiments of the quick tier: training, serving, another fabric."""


def yardstick() -> float:
    """CPU seconds that this machine takes for a fixed piece of Python, the least of three tries."""
    least = float("inf")
    for _ in range(3):
        start = time.process_time()
        total = 0
        for number in range(600_000):
            total += number & 7
        least = min(least, time.process_time() - start)
    return least


def cpu_s() -> float:
    """CPU seconds of this process and of those that it waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def peak_mib() -> float:
    """Most memory that this process ever held; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)
    return 0.0


def mostly_slow(values: Iterable[Any], *, quick: Iterable[Any]) -> list[Any]:
    """Values of a parametrised test: those of `quick` for the quick tier, all others marked."""
    kept = list(quick)
    return [value if value in kept else pytest.param(value, marks=pytest.mark.slow) for value in values]


def add_options(parser: pytest.Parser) -> None:
    """Options of the command line of pytest."""
    parser.addoption("--cpu-times", metavar="FILE", help="write CPU seconds, mark and name of every test to a CSV file")


class CpuTimes:
    """A pytest plugin: CPU seconds of each test, measured where it runs, collected where its report arrives."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        path = config.getoption("--cpu-times")
        self.path = Path(path) if path and not hasattr(config, "workerinput") else None
        self.seconds: dict[str, float] = {}
        self.marked: set[str] = set()
        self.speed = 1.0
        self.peak = (0.0, "")

    def pytest_sessionstart(self) -> None:
        """Measure the machine, and begin the file."""
        self.speed = REFERENCE_S / yardstick()
        if self.path is not None:
            self.path.write_text("cpu_s,mark,test\n", encoding="utf-8")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Charge fixtures to the test that uses them first."""
        return (yield from self._charged(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Charge the test itself."""
        return (yield from self._charged(item))

    def _charged(self, item: pytest.Item) -> Iterator[None]:
        start = cpu_s()
        try:
            return (yield)
        finally:
            item.user_properties += [("cpu_s", (cpu_s() - start) * self.speed), ("peak_mib", peak_mib())]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect, in the process that prints."""
        if report.when == "teardown":
            self.seconds[report.nodeid] = sum(s for name, s in report.user_properties if name == "cpu_s")
            if MARK in report.keywords:
                self.marked.add(report.nodeid)
            held = max((mib for name, mib in report.user_properties if name == "peak_mib"), default=0.0)
            self.peak = max(self.peak, (held, report.nodeid), key=lambda pair: pair[0])
            if self.path is not None:  # at once: a run that is stopped leaves what it measured
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(
                        f"{self.seconds[report.nodeid]:.3f},{MARK * (MARK in report.keywords)},{report.nodeid}\n"
                    )

    def unmarked(self) -> dict[str, float]:
        """Tests that take longer than a test without the mark may, longest first."""
        slow = {name: s for name, s in self.seconds.items() if s > SLOW_S and name not in self.marked}
        return dict(sorted(slow.items(), key=lambda pair: -pair[1]))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail where a test hides in the quick tier."""
        hidden = max(self.unmarked().values(), default=0) > TOLERANCE * SLOW_S
        if not hasattr(self.config, "workerinput") and session.exitstatus == pytest.ExitCode.OK and hidden:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name the tests that need the mark."""
        if not self.seconds:
            return
        total = sum(self.seconds.values())
        terminalreporter.write_line(f"{total:,.0f} CPU s of the reference machine in {len(self.seconds):,} tests")
        if self.peak[0]:
            terminalreporter.write_line(f"a worker held {self.peak[0]:,.0f} MiB at most, first in {self.peak[1]}")
        for name, s in self.unmarked().items():
            verdict = "needs the mark `slow`" if s > TOLERANCE * SLOW_S else "may need the mark `slow`"
            terminalreporter.write_line(f"{s:.1f} CPU s: {name} {verdict}")


def by_folder(rows: Iterable[tuple[float, str, str]]) -> list[str]:
    """Lines of a Markdown table: tests and CPU seconds of each folder and tier, of (CPU s, mark, test)."""
    result: dict[str, dict[str, list[float]]] = {}
    for seconds, mark, test in rows:
        folder = f"{Path(test.partition('::')[0]).parent.as_posix()}/"
        result.setdefault(folder, {"": [], MARK: []})[mark].append(seconds)
    lines = ["| folder | quick: tests, CPU s | slow: tests, CPU s |", "|---|---|---|"]
    for folder, tiers in sorted(result.items()):
        cells = [f"{len(each):,}, {sum(each):,.0f}" if each else "none" for each in tiers.values()]
        lines.append(f"| `{folder}` | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    read = [line for name in sys.argv[1:] for line in csv.DictReader(Path(name).read_text("utf-8").splitlines())]
    print("\n".join(by_folder((float(row["cpu_s"]), row["mark"], row["test"]) for row in read)))
