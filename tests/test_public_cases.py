"""Public runs that nothing was fitted on, each beside what is predicted of it: the committed page is recomputed."""

import re
from pathlib import Path

import pytest

from codesign.evidence.validation import validate
from codesign.evidence.validation.compared_runs import RUN
from codesign.evidence.validation.page import tables_of

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
PAGE = ROOT / "reports/validation/public_runs/runs.md"
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?")


def test_the_committed_page_is_what_is_predicted():
    """Every word of it, and every number within what its last digit allows."""
    rows = validate(ROOT / "tests/reference/public")
    anew, kept = tables_of(rows)["runs.md"], PAGE.read_text(encoding="utf-8")
    assert NUMBER.sub("#", anew) == NUMBER.sub("#", kept)
    for ours, theirs in zip(NUMBER.findall(anew), NUMBER.findall(kept), strict=True):
        assert float(ours) == pytest.approx(float(theirs), rel=2e-3, abs=0.11)
    assert [row for row in rows if row["suite"] == "note" and "set aside" in row["quantity"]] == []
    memory = [row for row in rows if row["suite"] == RUN and row["quantity"].startswith("cache_")]
    assert len(memory) == 6
    assert all(abs(row["error"]) < 0.12 for row in memory)
    assert all(row["predicted"] == row["measured"] for row in rows if row["suite"] == RUN and row["quantity"] == "fits")
