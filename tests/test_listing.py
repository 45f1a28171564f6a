"""`codesign list metrics|variables|limits`: names, units, ranges and meanings of the study at hand."""

import pytest

from codesign.commands.cli import main
from codesign.commands.listing import show_accelerators
from codesign.core.errors import ConfigError
from codesign.core.units import unit_of
from codesign.report.labels import meaning

SERVED = "experiment=serve_llama31_405b_static"


def listed(capsys, *arguments: str) -> str:
    assert main(["list", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_metrics_have_units_values_and_meanings(capsys):
    text = listed(capsys, "metrics", "tpot", SERVED)
    assert "tpot_s" in text
    assert "time per output token" in text
    assert "ttft_s" not in text


def test_limits_show_what_is_limited_and_where_the_design_stands(capsys):
    text = listed(capsys, "limits", SERVED, "_s")
    assert text.index("objective.limits.ttft_s") < text.index("objective.limits.time_s")
    assert "10 s" in text


def test_variables_show_what_is_varied_first_with_units(capsys):
    text = listed(capsys, "variables", SERVED)
    assert "one of 1, 2, 4, 8, 16" in text
    assert "varied: 150 GB/s to 1.8 TB/s" in text
    assert text.index("plan.tp") < text.index("plan.zero")
    assert "constants of kernels and collectives" in text


def test_constants_of_kernels_stand_back_unless_they_are_asked_for(capsys):
    """Of 60 bandwidths of an H100 about 50 belong to the chips that kernels were fitted on."""
    text = listed(capsys, "variables", "bandwidth", SERVED)
    assert "cluster.accelerator.hbm.bandwidth_bytes_per_s" in text
    assert "attention_decode" not in text
    assert "codesign list variables kernels bandwidth" in text
    assert "gemm" in listed(capsys, "variables", "kernels", "compute_ratio", SERVED)


def test_words_filter_options_too(capsys):
    text = listed(capsys, "accelerator", "blackwell")
    assert "b200" in text
    assert "h100_sxm" not in text


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("metricss",), "did you mean 'metrics'"),
        (("limits", "zebra", SERVED), "nothing has zebra"),
        (("accelerator", "plan.tp=8"), "overrides belong to metrics, variables, limits"),
        (("variables", "model=nope"), "model = nope does not exist"),
    ],
)
def test_what_cannot_be_listed_has_its_line(capsys, arguments, part):
    assert main(["list", *arguments]) == 2
    error = capsys.readouterr().err
    assert part in error
    assert error.count("\n") == 1


def test_meanings_are_of_metrics_with_units():
    assert meaning("usage.hbm").startswith("HBM: used share")
    assert meaning("memory_bytes.hbm/kv_cache") == "KV cache in HBM: bytes per device"
    assert meaning("breakdown_s.tp").startswith("tensor-parallel comm.: part of the time")
    assert meaning("nothing_known") == ""
    assert unit_of("tpot_s") == "s"


def test_accelerators_stand_side_by_side_with_their_standing(capsys):
    show_accelerators(["announced"])
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert {"rubin", "mi455x", "tpu_8i", "groq_3_lpu", "ascend_950dt"} <= set(rows)
    assert "500 MB" in rows["groq_3_lpu"]
    assert "432 GiB" in rows["mi455x"]
    assert "h100_sxm" not in rows
    show_accelerators(["h100_sxm"])
    assert "measured" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="nothing has nonsense"):
        show_accelerators(["nonsense"])
