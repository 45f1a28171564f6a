"""The answer to a plain question in lines, and the slide of it."""

import math

import pandas as pd
import pytest

from codesign.commands.questions import Question
from codesign.commands.what_to_buy import Purchase, answer_lines, slide_of
from codesign.report.comparison_figures import SIZES, AnswerSlide, write_slide
from codesign.report.side_by_side import Comparison

ROWS = [
    {"candidate": name, "feasible": True, "objective": cost, "objective_low": 0.9 * cost,
     "usd_per_million_tokens": cost, "objective_high": high, "usd_per_million_tokens_low": 0.9 * cost,
     "usd_per_million_tokens_high": high,
     "tpot_s": 0.03, "wins": wins, "keeps": 0.4, "why": ""}
    for name, cost, high, wins in (("b200", 0.5, 0.6, 0.8), ("<h200>", 0.8, math.inf, 0.2))
]  # fmt: skip
PRICES = pd.DataFrame([{"what": "the price of b200's accelerators", "factor": 1.7, "best": "<h200>", "goal": 0.8}])
QUESTION = Question("least cost of a model on b200, <h200>: 30 requests/s", (("Poisson arrivals", "--trace"),), (), ())
ANSWER = Purchase("b200", "b200", 24, 8, 40e3, 4.0, 1.6e6, 45e3, "$0.5", "tp1 ep8", keeps=0.4, certified=True)


def joint() -> Comparison:
    return Comparison(pd.DataFrame(ROWS), "usd_per_million_tokens", job="a model serving", prices=PRICES,
                      facts={"date": "2026-01-01", "command": "codesign serve"})  # fmt: skip


def test_an_answer_is_what_to_buy():
    lines = answer_lines(QUESTION, ANSWER)
    assert lines[0] == "answer   24 x b200 (3 boxes of 8): $40 k a month, $1.6 M to buy, 45 kW provisioned"
    assert lines[1].strip() == "one spare box of 8 (N+1): 32 devices, about 33% more capital"
    assert "in 40% of the draws" in lines[2]
    assert ANSWER.life_usd == 40e3 * 48
    part = Purchase("b200", "b200", 2, 8, 1.0, 4.0, 1.0, 1.0, "$1", "tp2")
    assert answer_lines(QUESTION, part)[1].strip() == "a part of a box of 8: the whole box leaves 6 spare"
    assert answer_lines(QUESTION, None) == ["no design keeps all limits: each row says what is short"]


def test_a_slide_says_the_choice_why_and_what_would_change_it(tmp_path):
    slide = slide_of(QUESTION, joint(), ANSWER)
    assert slide.choice == "Buy 24 x b200 (3 boxes of 8)"
    assert {what: value for value, what in slide.facts}["over 4 years"] == "$1.92 M"
    assert any("60% above" in line for line in slide.why)
    assert any("bound is proven" in line for line in slide.why)
    assert any("1.70 times" in line for line in slide.changes)
    page = write_slide(slide, joint(), tmp_path)
    text = page.read_text(encoding="utf-8")
    assert "&lt;h200&gt;" in text
    assert "<h200>" not in text
    assert "What would change the answer" in text
    assert (tmp_path / "slide.png").read_bytes().startswith(b"\x89PNG")


def test_two_prices_in_a_line_are_no_formula(tmp_path, monkeypatch):
    """Text between two dollar signs is mathematics to matplotlib."""
    drawn = []
    monkeypatch.setattr("codesign.report.comparison_figures.render", lambda figure: drawn.append(figure) or b"")
    write_slide(slide_of(QUESTION, joint(), ANSWER), joint(), tmp_path)
    texts = [text for figure in drawn for text in figure.texts]
    assert any(text.get_text().count("$") > 1 for text in texts)
    assert not any(text.get_parse_math() for text in texts if text.get_text().count("$") > 1)


def test_what_is_rented_is_not_bought():
    rented = Purchase("b200", "b200", 8, 8, 1e3, 4.0, math.nan, 1e4, "$1", "tp8")
    slide = slide_of(QUESTION, joint(), rented)
    assert slide.choice.startswith("Rent 8 x b200")
    assert "to buy" not in [what for _, what in slide.facts]
    assert ("$12 k", "a year") in slide.facts


@pytest.mark.parametrize(("sentences", "size"), [(2, SIZES[0]), (400, SIZES[-1])])
def test_text_is_set_as_large_as_it_fits(sentences, size):
    from codesign.report.comparison_figures import _fitted

    long = AnswerSlide("q", "c", (), ("a sentence of some words",) * sentences, (), ())
    assert _fitted(long)[0] == size
