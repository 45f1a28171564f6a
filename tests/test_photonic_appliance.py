"""The appliance's document: every cell of its energy tables, its headlines, and what the ports leave of them."""

import ast
import io
import itertools
import re
import tokenize
from pathlib import Path

import pandas as pd
import pytest

import codesign
from _lib.celestisim_figures import gains_by_compute
from _lib.celestisim_inference import LENGTHS, appliance_pool, at, compare, reference
from codesign.evidence.reproduction import available, load


@pytest.mark.slow
def test_every_cell_of_the_energy_tables():
    rows = [claim.row() for claim in load(available()["pfa_energy"]).cells()]
    assert len(rows) == 132 + 99
    missed = [row["claim"] for row in rows if not row["ok"]]
    assert not missed


@pytest.mark.slow
def test_headlines_with_the_fitted_constants():
    ours = compare(reference(), "405B")
    assert ours["throughput_gain"].max() == pytest.approx(3.66, rel=0.05)
    assert ours["latency_gain"].max() == pytest.approx(1.40, rel=0.05)
    assert at(ours, 128, 4096, "dgx_mfu") == pytest.approx(0.136, rel=0.05)
    assert at(ours, 128, 4096, "appliance_mfu") == pytest.approx(0.497, rel=0.05)
    assert compare(reference(), "1T")["throughput_gain"].max() == pytest.approx(7.04, rel=0.05)


def test_the_figures_headline_is_one_sentence_of_whole_words():
    frames = {share: pd.DataFrame({"throughput_gain": gain, "latency_gain": 1.2}, index=range(len(LENGTHS)))
              for share, gain in ((1.0, 3.66), (0.25, 2.5))}  # fmt: skip
    words = gains_by_compute(frames, "405B").get_suptitle().split()
    assert " ".join(words) == (
        "405B: the appliance's memory gives up to 3.7 times the throughput where answers are long, 2.5 with 0.25 of the"
        " compute; one request gains at most 1.20"
    )


@pytest.mark.slow
def test_no_text_of_the_package_was_cut_into_empty_pieces():
    """No string that is written in pieces has one that says nothing."""
    package = Path(codesign.__file__).parent
    for path in sorted([*package.rglob("*.py"), *(package.parent / "experiments" / "_lib").rglob("*.py")]):
        pieces = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
        words = [piece for piece in pieces if piece.type not in (tokenize.NL, tokenize.COMMENT)]
        for before, one in itertools.pairwise(words):
            if before.type == one.type == tokenize.STRING:
                said = [ast.literal_eval(text) for text in (before.string, one.string) if text[0] in "\"'"]
                assert all(said), (path, one.start)
                assert not re.search(r'^[fr]+(""|\'\')$', one.string), (path, one.start)


def test_ports_turn_the_latency_gain_into_a_loss():
    bound = compare(reference(), "405B", pool=appliance_pool())
    assert bound["latency_gain"].max() < 1 < bound["throughput_gain"].max()
    assert appliance_pool(bound=False).remarks()
    assert not appliance_pool().remarks()
