"""What failures leave of training time: published rates and effective time; the closed form, simulated."""

import functools

import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from _lib.failing_jobs import FinishedJob, Kind, simulate_job
from codesign import Scenario, replace, scenario_from_config
from codesign.evidence.reproduction import Claim
from codesign.model.reliability import Failure, Reliability, young_interval_s
from codesign.report.findings import BLUE, ORANGE, Label, beside, headline, name_ends, panels, plain_ticks
from codesign.search import numbers_of

NAME = "training_goodput"
DEVICES = 16384
LLAMA = (
    "model=llama31_405b", "workload=training_run", "plan=shaped", "plan.tp=8", "plan.pp=16", "plan.micro_batch=1",
    "plan.recompute=selective", "workload.sequence=8192", "workload.global_batch=2048", "workload.tokens=15.6e12",
    f"cluster.device_count={DEVICES}", "plan.virtual_stages=2",
)  # fmt: skip
INTERVALS = 2.0 ** np.arange(-4, 4.5, 0.5)  # of the best
CASES, FAILURES = 200, 1000
SCALES = (1024, 4096, 16384, 65536, 131072)


@functools.cache
def scenario(rates: str, *more: str) -> Scenario:
    """Llama 3.1 405B under published rates."""
    return scenario_from_config(*LLAMA, f"reliability={rates}", *more)


@functools.cache
def priced(rates: str, *more: str) -> dict[str, float]:
    """The same, priced."""
    return numbers_of(scenario(rates, *more))


def goodput_at(rates: str, interval_s: float) -> float:
    """Share of productive time with so much work between checkpoints."""
    path = "cluster.reliability.interval_s"
    return numbers_of(replace(scenario(rates, f"{path}=1"), {path: interval_s}))["goodput"]


def claims() -> list[Claim]:
    """Published rates, effective time, simulation."""
    llama = priced("llama3")
    reliability = scenario("llama3").cluster.reliability
    assert reliability is not None
    goodput, per_day = llama["goodput"], llama["failures_per_day"]
    result = [
        Claim(NAME, "interruptions of 16,384 devices in 54 days", 419, 54 * per_day, 0.001, "published: an input"),
        Claim(NAME, "share of productive time, above 90 % as published", 0.9, goodput, 0.0,
              "rates published, restart time of another system, checkpoints by the model's state and storage",
              error=max(0.9 - goodput, 0.0)),
    ]  # fmt: skip
    research = scenario("rsc1").cluster.reliability
    assert research is not None
    for devices, hours in ((16384, 1.8), (131072, 0.23)):
        ours = 1 / float(research.rate_hz(jnp.asarray(float(devices)))) / 3600
        result.append(
            Claim(NAME, f"hours between failures of {devices:,} devices of RSC-1", hours, ours, 0.03, "published rate")
        )
    return [*result, *against_simulation(), *intervals_told(reliability, llama)]


def intervals_told(reliability: Reliability, llama: dict[str, float]) -> list[Claim]:
    """Young's interval is first order of the best one, which is never worse."""
    written, rate = llama["checkpoint_s"], float(reliability.rate_hz(jnp.asarray(float(DEVICES))))
    best, young = llama["checkpoint_interval_s"], float(young_interval_s(rate, written))
    return [
        Claim(NAME, "work between checkpoints, s, against sqrt(2 c / r)", young, best, 0.05, "derived: first order")
    ]


class Case:
    """A job with random rates, times and interval; simulated, and by the closed form."""

    def __init__(self, seed: int):
        rng = np.random.default_rng(seed)
        self.between = 10 ** rng.uniform(3, 6)
        self.written = self.between * 10 ** rng.uniform(-4, -0.7)
        self.restart = self.between * 10 ** rng.uniform(-4, -1)
        shares = rng.dirichlet([4.0, 2.0, 0.5])
        self.lost = self.between * 10 ** rng.uniform(-3, -1)
        self.failures = {
            name: Failure(1e6 * self.between / share / 3600, lost_s=lost, replaced=0.0)
            for name, share, lost in zip(("device", "host", "silent"), shares, (0.0, 0.0, self.lost), strict=True)
        }
        self.interval = None if seed % 2 else self.best() * 10 ** rng.uniform(-0.5, 0.5)
        self.seed = seed

    def best(self) -> float:
        """The best interval."""
        return float(self.law(None).best_interval_s(jnp.asarray(1e6), jnp.asarray(self.written)))

    def law(self, interval: float | None) -> Reliability:
        """The closed form at an interval."""
        return Reliability(self.failures, self.restart - self.written, interval_s=interval)

    def goodput(self) -> float:
        """By the closed form, of a million devices, each of which fails a million times less often."""
        return 1 / float(self.law(self.interval).stretched(jnp.asarray(1e6), jnp.asarray(self.written)))

    def simulated(self) -> FinishedJob:
        """Event by event."""
        rates = {name: float(f.rate_hz(jnp.asarray(1e6))) for name, f in self.failures.items()}
        kinds = [Kind(rates[name], float(failure.lost_s)) for name, failure in self.failures.items()]
        interval = self.best() if self.interval is None else self.interval
        return simulate_job(kinds, FAILURES * self.between, interval, self.written, self.restart, self.seed)


@functools.cache
def compared() -> pd.DataFrame:
    """Goodput of random jobs by both."""
    rows = []
    for seed in range(CASES):
        case = Case(seed)
        rows.append(
            {
                "closed form": case.goodput(),
                "simulated": case.simulated().goodput,
                "best interval": case.interval is None,
            }
        )
    return pd.DataFrame(rows)


def against_simulation() -> list[Claim]:
    """The largest difference in the share of productive time, and what is systematic of it."""
    table = compared()
    ratio = table["simulated"] / table["closed form"]
    lost = ((1 - table["simulated"]) / (1 - table["closed form"])).mean()
    worst = float((ratio - 1).abs().max())
    told = f"{CASES} random jobs of {FAILURES:,} failures"
    return [
        Claim(NAME, f"goodput against the simulation, largest difference over {told}", None, worst, 0.05, "predicted",
              error=worst),
        Claim(NAME, f"lost time against the simulation, mean ratio over {told}", 1.0, float(lost), 0.02, "predicted"),
    ]  # fmt: skip


def tables() -> dict[str, pd.DataFrame]:
    """Goodput over the size of a cluster, to storage and to the memory of hosts."""
    rows = []
    for devices in SCALES:
        size = (f"cluster.device_count={devices}", f"workload.global_batch={devices // 8}")
        row: dict[str, float] = {"devices": devices}
        for rates in ("llama3", "rsc1"):
            for store in ("storage", "host"):
                row[f"{rates}, {store}"] = priced(rates, *size, f"cluster.reliability.store={store}")["goodput"]
        rows.append(row)
    return {"share of productive time": pd.DataFrame(rows)}


def figures() -> dict[str, Figure]:
    """Closed form against simulation with the share of jobs, and goodput over the interval."""
    figure, ((left, right),) = panels(3.3, 1, 2)
    table = compared()
    closed, seen = (table[name].to_numpy() for name in ("closed form", "simulated"))
    apart = 100 * (seen / closed - 1)
    low, high = np.quantile(apart, (0.05, 0.95))
    left.axhspan(low, high, color=BLUE, alpha=0.15, linewidth=0)
    left.axhline(0, color="0.4", linewidth=1)
    left.plot(100 * closed, apart, ".", color=BLUE, alpha=0.6)
    left.set(xlabel="productive time, closed form, %", title="simulated over closed form, less 1, %")
    beside(left, "nine jobs of ten", 88.0, high, BLUE, (0, 10))
    ends, best_of = [], {}
    for rates, colour in (("llama3", BLUE), ("rsc1", ORANGE)):
        metrics = priced(rates)
        best = metrics["checkpoint_interval_s"]
        result = [100 * goodput_at(rates, best * float(ratio)) for ratio in INTERVALS]
        right.plot(best * INTERVALS, result, color=colour, linewidth=1.4)
        right.plot([best], [100 * metrics["goodput"]], "o", color=colour, markersize=4.5)
        beside(right, f"{best:.0f} s", best, 100 * metrics["goodput"], colour, (0, 5))
        ends.append(
            Label(
                float(best * INTERVALS[-1]), result[-1], {"llama3": "Llama 3's rates", "rsc1": "RSC-1's"}[rates], colour
            )
        )
        best_of[rates] = (best, 100 * metrics["goodput"], result[-1])
    right.set(xscale="log", xlabel="work between checkpoints, s", title="productive time, %")
    right.margins(y=0.12)
    plain_ticks(right, "x", (20, 100, 500, 2000))
    name_ends(right, ends)
    interval, top, last = best_of["llama3"]
    headline(figure, f"At Llama 3's rates {top:.1f} % of the time is productive with a checkpoint every "
             f"{interval:.0f} s; an "
             f""
             f"hour between them costs {top - last:.0f} points; the closed form is within {np.abs(apart).max():.1f} "
             f"% of "
             f"{CASES} simulated jobs")  # fmt: skip
    return {"closed form and simulation": figure}
