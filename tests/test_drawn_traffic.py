"""Profiles and Markov-modulated rates of the command line: rates and counts as asked for, and what is refused."""

import numpy as np
import pytest

from codesign.commands.cli import main
from codesign.commands.plain_values import VaryingTraffic, load_of, modulation_of, varying_traffic
from codesign.core.errors import ConfigError
from codesign.simulation.fleet import Modulation, by_profile

DESIGN = (
    "model=llama31_8b", "accelerator=h100_sxm", "calibration=h100_sxm_roofline", "workload=goodput",
    "cluster.device_count=1", "plan.tp=1", "plan.micro_batch=64",
)  # fmt: skip


def test_a_day_has_the_ratio_and_the_mean_that_it_is_asked_for():
    hours = load_of("day:3")
    assert len(hours) == 24
    assert hours.mean() == pytest.approx(1)
    assert hours.max() / hours.min() == pytest.approx(3)
    assert (int(hours.argmin()), int(hours.argmax())) == (0, 12)
    assert load_of("day:1") == pytest.approx(1)


def test_a_chain_by_hand():
    chain = modulation_of("20/s:2min, 60/s:10s")
    assert chain == Modulation((20.0, 60.0), (120.0, 10.0))
    assert chain.mean() == pytest.approx((20 * 120 + 60 * 10) / 130)
    assert modulation_of("0/s:1s,1.2k/min:1s").rates == (0.0, 20.0)


def test_hours_and_bursts_together_keep_the_mean_of_each_hour():
    """Over many days: arrivals by the hour, and counts of a minute as the chain's variance makes them."""
    rng, chain = np.random.default_rng(0), Modulation((1.0, 5.0), (30.0, 10.0))
    hours, days = np.array([0.2, 0.6]), 200
    came = by_profile(rng, hours, 3600.0, span_s=7200.0 * days, modulation=chain)
    counts = np.histogram(came % 7200.0, [0, 3600, 7200])[0] / (3600 * days)
    assert counts == pytest.approx(hours, rel=0.03)
    assert (np.diff(came) >= 0).all()
    alone = by_profile(rng, hours, 3600.0, span_s=7200.0 * days)
    varies = [np.histogram(one, np.arange(0, 7200.0 * days, 60))[0] for one in (came, alone)]
    # of a chain with stays a, b the factor's variance is p (1 - p) (r - s)^2 / mean^2, correlated over a b / (a + b)
    share, decay = 0.25, 30 * 10 / 40
    factor = share * (1 - share) * 16 / chain.mean() ** 2
    kept = 2 * decay / 60 * (1 - decay / 60 * (1 - np.exp(-60 / decay)))
    expected = 60**2 * (hours**2).mean() * factor * kept
    assert varies[0].var() - varies[1].var() == pytest.approx(expected, rel=0.1)


def test_a_stream_has_so_many_requests_at_the_mean_rate():
    rng = np.random.default_rng(1)
    chain = varying_traffic("", "5/s:1s,20/s:1s", 0.0, trace="")
    assert chain is not None
    came = chain.arrivals(rng, 20_000, 50.0, 1.0)
    assert len(came) == 20_000
    assert len(came) / came[-1] == pytest.approx(50, rel=0.05)
    day = VaryingTraffic(load_of("day:2"), None).arrivals(rng, None, 0.2, 1.0)
    assert len(day) == pytest.approx(0.2 * 86400, rel=0.03)


WRONG = [
    (["--profile", "day", "--rate", "2"], "write day:3"),
    (["--profile", "day:0.5", "--rate", "2"], "write day:3"),
    (["--profile", "day:3"], "say the mean too"),
    (["--profile", "nowhere.csv"], "'nowhere.csv' cannot be read"),
    (["--markov", "20/s"], "'20/s' is no rate with a time"),
    (["--markov", "20:3s,5/s:2s"], "'20' is no rate of requests"),
    (["--markov", "20/s:3,5/s:2s"], "of what? write 2min or 10s"),
    (["--markov", "20/s:3s"], "two rates or more"),
    (["--markov", "0/s:3s,0/s:2s"], "one above 0"),
    (["--markov", "20/s:3s,5/s:2s", "--trace", "x.csv"], "leave out --profile and --markov"),
    (["--markov", "20/s:3s,5/s:2s", "--num-prompts", "100"], "leave out --replicas"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_what_is_wrong_is_one_line(words, said, capsys):
    assert main(["simulate", *DESIGN, "--replicas", "4", *words]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert said in told[0]


def test_a_day_of_too_many_requests_is_refused():
    with pytest.raises(ConfigError, match="1,000,000 are simulated at most: take --rate 11"):
        VaryingTraffic(load_of("day:2"), None).arrivals(np.random.default_rng(0), None, 50.0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--load", "day:3"], "--busiest R"),
        (["--load", "day:3", "--busiest", "20", "--markov", "5/s:1min,20/s:5s"], "say --start"),
    ],
)
def test_autoscaling_says_what_it_lacks(words, said, capsys):
    assert main(["autoscale", *DESIGN, *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_bursts_on_a_fleet(capsys):
    assert main(["simulate", *DESIGN, "--replicas", "4", "--markov", "5/s:1min,30/s:20s", "--requests", "20000"]) == 0
    assert "the rate drifts" in " ".join(capsys.readouterr().out.split())
