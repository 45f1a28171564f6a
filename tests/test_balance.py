"""Arithmetic intensity and the share of communication as metrics: by hand, with batch and context, in an objective."""

import pytest

from codesign.config import scenario_from_config, study_from_config
from codesign.model.metrics import evaluate, priced_ops
from codesign.model.workloads import ComputeOp

SERVED = (
    "model=llama2_70b",
    "workload=static_batch",
    "plan.tp=8",
    "cluster.device_count=8",
    "calibration=h100_sxm_roofline",
)


def told(*overrides) -> dict[str, float]:
    return {name: float(value) for name, value in evaluate(scenario_from_config(*SERVED, *overrides)).flat().items()}


@pytest.mark.slow
def test_intensity_is_flops_over_bytes_of_all_kernels():
    scenario = scenario_from_config(*SERVED)
    repeats = scenario.workload.repeats(scenario.layout)
    kernels = [op for op, _ in priced_ops(scenario) if isinstance(op, ComputeOp)]
    flops, nbytes = (
        sum(float(op.count * repeats[op.phase] * getattr(op.work, name)) for op in kernels)
        for name in ("flops", "nbytes")
    )
    assert told()["arithmetic_intensity"] == pytest.approx(flops / nbytes)


def test_decode_s_rises_with_the_batch_and_falls_with_the_cache():
    """As figure 1 of the Photonic Fabric document has it."""
    decode = ("workload.input_tokens=1", "workload.output_tokens=1000")
    batches = [told(*decode, f"plan.micro_batch={batch}")["arithmetic_intensity"] for batch in (1, 8, 64)]
    assert batches == sorted(batches)
    longer = told("workload.input_tokens=1", "workload.output_tokens=16000", "plan.micro_batch=64")
    assert longer["arithmetic_intensity"] < batches[2]


def test_communication_is_the_axes_part_of_the_time():
    numbers = told()
    parts = sum(numbers.get(f"breakdown_s.{axis}", 0.0) for axis in ("tp", "cp", "ep", "pp", "dp"))
    assert numbers["communication_share"] == pytest.approx(parts / numbers["time_s"])
    assert told("plan.tp=1", "precision=int4", "plan.micro_batch=1")["communication_share"] == 0.0


def test_both_may_be_limits():
    study = study_from_config(*SERVED, "+objective.limits.communication_share=0.2", "objective.minimise=tpot_s")
    assert study.objective.limits["communication_share"] == 0.2
