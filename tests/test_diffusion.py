"""Images from diffusion transformers: published sizes, counted by hand, and plans that are proven."""

import pytest

from codesign import Certified, evaluate, scenario_from_config, solve, study_from_config
from codesign.commands.cli import main
from codesign.model.workloads.diffusion import DiffusionTransformer

DIT_XL_4 = DiffusionTransformer(1152.0, 28.0, 16.0, 64.0)  # 256 x 256: latents of 32 x 32 in patches of 4 x 4


def model(name: str) -> DiffusionTransformer:
    return scenario_from_config("workload=images", f"model={name}").workload.model


def test_arithmetic_is_that_of_the_paper():
    """Table 1 of [peebles2023dit] counts 29.1 Gflops, a multiplication with its sum as one."""
    assert float(DIT_XL_4.forward_flops()) / 2e9 == pytest.approx(29.1, rel=0.01)


@pytest.mark.parametrize(("name", "billions"), [("dit_xl_2", 0.675), ("flux_1_dev", 12.0)])
def test_weights_are_the_published_ones_but_for_embeddings(name, billions):
    assert float(model(name).parameters()) / 1e9 == pytest.approx(billions, rel=0.02)


def test_a_pass_takes_the_longer_of_arithmetic_and_memory_and_guidance_doubles_it():
    one, two = (
        evaluate(scenario_from_config("workload=images", "model=dit_xl_2", f"workload.model.branches={branches}"))
        for branches in (1, 2)
    )
    peak = 989.4e12
    assert float(one.time_s) > 50 * float(model("dit_xl_2").forward_flops()) / peak
    assert 1.5 < float(two.time_s / one.time_s) < 2.05


@pytest.mark.slow
def test_plans_are_certified_and_an_image_in_parts_comes_sooner():
    plans = "space.plan={tp: [1], cut: [1, 8], guide: [1], images: [1]}"
    study = study_from_config(
        "workload=images", "accelerator=h100_sxm", "cluster.device_count=8", "objective=fastest_step", plans
    )
    result = solve(study, Certified())
    assert result.certified
    assert result.best["var.cut"] == 8
    assert result.best["images_per_s"] == pytest.approx(1 / result.best["time_s"], rel=1e-9)


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("plan.tp=5", "plan.tp = 5 does not divide model.heads = 24"),
        ("plan.cut=3", "plan.cut = 3 does not divide model.image_tokens = 4096"),
        ("plan.guide=2", "plan.guide = 2 ranks for model.branches = 1"),
        ("workload.model.joint_layers=60", "model.joint_layers = 60 of model.layers = 57"),
        ("plan=serving_node", "ImageSampling is laid out by a ImagePlan"),
    ],
)
def test_what_cannot_be_has_its_line(override, part, capsys):
    assert main(["evaluate", "workload=images", "cluster.device_count=120", override]) == 2
    told = capsys.readouterr().err
    assert part in told
    assert told.count("\n") == 1
