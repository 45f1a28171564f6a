"""Numbers with SI prefixes and sums of money: what rounding carries over takes the next prefix."""

import math

import pytest

from codesign.core.units import PREFIXES, engineering
from codesign.report.labels import money, number


@pytest.mark.parametrize(
    ("value", "unit", "digits", "text"),
    [
        (4.5e11, "B/s", 3, "450 GB/s"), (9.997e11, "B/s", 3, "1 TB/s"), (9.997e11, "B/s", 4, "999.7 GB/s"),
        (0.9996, "s", 3, "1 s"), (0.9994, "s", 3, "999 ms"), (9.999e-7, "s", 3, "1 us"), (-999_999.0, "B", 3, "-1 MB"),
        (0.0, "s", 3, "0 s"), (4.5e11, "B/s", 1, "400 GB/s"),
        (9.9999e20, "B", 3, "1e+03 EB"), (3e-15, "s", 3, "3e-15 s"), (math.inf, "s", 3, "inf s"),
        (12.0, "", 3, "12"),
    ],
)  # fmt: skip
def test_engineering_carries_to_the_next_prefix(value, unit, digits, text):
    assert engineering(value, unit, digits) == text


@pytest.mark.parametrize("digits", [1, 2, 3, 4])
@pytest.mark.parametrize("factor", [factor for factor, _ in PREFIXES if factor < 1e18])
def test_nothing_between_prefixes_is_written_with_an_exponent(factor, digits):
    for share in (1.0, 9.99951, 99.9996, 999.4, 999.5, 999.96, 999.99999):
        text = engineering(factor * share, "B", digits).split()[0]
        assert abs(float(text)) < 1000
        assert "e" not in text


@pytest.mark.parametrize(
    ("usd", "digits", "text"),
    [
        (999_999, 3, "$1.00 M"), (999_999, 6, "$999.999 k"), (999_999_999, 3, "$1.00 bn"), (999_400, 3, "$999 k"),
        (9_999.6, 3, "$10.0 k"), (9_999.4, 3, "$9,999"), (0.51849, 3, "$0.518"), (0.9996, 3, "$1.00"),
        (0.0, 3, "$0"), (2.5e12, 3, "$2,500 bn"), (math.inf, 3, "$inf"),
    ],
)  # fmt: skip
def test_money_carries_to_the_next_word(usd, digits, text):
    assert money(usd, digits).replace("\u202f", " ") == text


def test_a_number_in_a_report_keeps_its_digits_where_it_is_carried():
    assert number(9.997e11, "B/s", zeros=True).replace("\u202f", " ") == "1.00 TB/s"
    assert number(9.996, "s", zeros=True).replace("\u202f", " ") == "10.0 s"
