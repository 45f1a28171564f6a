"""The appliance's document: every cell of its energy tables, its headlines, and what the ports leave of them."""

import pytest

from codesign.evidence.reproduction import available, load
from codesign.evidence.validation.celestisim_inference import appliance_pool, at, compare, reference


def test_every_cell_of_the_energy_tables():
    rows = [claim.row() for claim in load(available()["pfa_energy"]).cells()]
    assert len(rows) == 132 + 99
    missed = [row["claim"] for row in rows if not row["ok"]]
    assert not missed


def test_headlines_with_the_fitted_constants():
    ours = compare(reference(), "405B")
    assert ours["throughput_gain"].max() == pytest.approx(3.66, rel=0.05)
    assert ours["latency_gain"].max() == pytest.approx(1.40, rel=0.05)
    assert at(ours, 128, 4096, "dgx_mfu") == pytest.approx(0.136, rel=0.05)
    assert at(ours, 128, 4096, "appliance_mfu") == pytest.approx(0.497, rel=0.05)
    assert compare(reference(), "1T")["throughput_gain"].max() == pytest.approx(7.04, rel=0.05)


def test_ports_turn_the_latency_gain_into_a_loss():
    bound = compare(reference(), "405B", pool=appliance_pool())
    assert bound["latency_gain"].max() < 1 < bound["throughput_gain"].max()
    assert appliance_pool(bound=False).remarks()
    assert not appliance_pool().remarks()
