"""Exchange of experts by libraries: constants recovered from rows, between links, and composed for a model."""

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from codesign.config.composition import compose
from codesign.config.engines import Exchange, fitted_exchanges, reached, with_engine
from codesign.evidence.calibration.exchange import fit_exchange, table_of

FABRIC = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
SENT = "cluster.network.scale_up.collectives.all_to_all"


def sent(link, **model):
    """The all-to-all that an engine's library has for a model over a link, as they are set."""
    plain = OmegaConf.to_container(compose(["workload=static_batch", "model=deepseek_v3"]), resolve=False)
    config = OmegaConf.create(plain)
    config.workload.engine = {"exchange": "deepep_low_latency"}
    for path, value in {FABRIC: link, **{f"workload.model.{name}": value for name, value in model.items()}}.items():
        OmegaConf.update(config, path, value)
    return OmegaConf.to_container(OmegaConf.select(with_engine(config), SENT))


@pytest.mark.slow
@pytest.mark.parametrize("value", [0, -1, "many", None, [1, 2], float("nan"), float("inf")])
def test_what_no_model_has_is_left_for_its_range_to_refuse(value):
    """Composing an exchange neither fails at it nor believes it: it is made for what most rows were measured with."""
    usual = sent(900e9)
    assert sent(value, hidden=value, **{"feed_forward.experts": value, "feed_forward.top_k": value}) == usual
    assert sent(900e9, **{"feed_forward.experts": 64})["base_8_s"] < usual["base_8_s"]
    assert sent(900e9, hidden=2048)["ratio_8"] < usual["ratio_8"]


def exchanged(constants: Exchange) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    draw = lambda *values: rng.choice(values, 400)  # noqa: E731
    tokens, top_k, experts = np.exp(rng.uniform(0, 8, 400)), draw(2.0, 4.0, 8.0), draw(8.0, 64.0, 256.0)
    rows = pd.DataFrame({
        "link": draw(450e9, 900e9), "node": draw(4.0, 8.0), "processors": draw(8.0, 16.0, 24.0), "experts": experts,
        "arrivals": tokens * top_k / experts, "copies_bytes": 4096 * tokens * top_k,
        "ranks_bytes": 4096 * tokens * reached(8, top_k), "nodes_bytes": 4096 * tokens,
    })  # fmt: skip
    return rows.assign(library="a", phase="combine", format="fp8", across=False, measured_s=constants.seconds(rows))


@pytest.mark.parametrize("counted", ["ranks", "copies", "nodes"])
def test_exchange_constants_are_recovered_and_kept(counted):
    """Also how often a token is sent, which is chosen among three."""
    true = Exchange(30e-6, 70e-6, 2e-8, 200e9, 1e-6, 0.8, 0.5, 0.9, counted)
    result = fit_exchange(exchanged(true))
    assert result.counted == counted
    assert np.asarray(result[:-1]) == pytest.approx(true[:-1], rel=0.05)


def test_exchange_constants_are_written_and_read():
    rows = exchanged(Exchange(30e-6, 70e-6, 2e-8, 200e9, 1e-6, 0.8, 0.5, 0.9, "ranks"))
    assert table_of(rows.head(5)) == ""
    assert table_of(rows.head(40)).splitlines()[1].startswith("a,combine,fp8,False,")
    assert ("deepep_normal", "dispatch", "fp8", False) in fitted_exchanges()


def test_an_exchange_between_and_beyond_the_links_that_were_measured():
    one = fitted_exchanges()["deepep_low_latency", "dispatch", "fp8", False]
    assert one.rate(900e9) == pytest.approx(one.rate_bytes_per_s)
    assert one.rate(450e9) == pytest.approx(one.rate_bytes_per_s * 0.5**one.link_power)
    assert one.rate(3600e9) == pytest.approx(4 * one.rate(900e9))
    assert one.rate(45e9) == pytest.approx(one.rate(450e9) / 10)
    assert one.start_s(3600e9, 8) == one.start_s(900e9, 8) == one.start_8_s
    assert one.start_s(900e9, 4) == one.start_4_s
