"""Sixty wrong inputs of an architect, a chip designer and a researcher: one line each, exit code 2."""

import shlex

import pytest

from codesign.cli import main

ARCHITECT = (
    "compare accelerator=h100,h200 model=llama31_405b workload=serving_fp8",
    "compare accelerator=h200 model=llama31_405b workload=serving_fp8",
    "compare accelerator=h200,b200 model=llama405b workload=serving_fp8",
    "compare accelerator=h200,b200 model=llama31_405b workload=serve_fp8",
    "compare accelerator=h200,b200 model=llama31_405b workload=serving_fp8 objective.limits.tpot=50ms",
    "compare accelerator=h200,b200 model=llama31_405b workload=serving_fp8 objective.limits.tpot_s=50GB",
    "compare accelerator=h200,b200 model=llama31_405b workload=serving_fp8 objective.limits.tpot_s=-1",
    "compare accelerator=h200,b200 model=llama31_405b workload=serving_fp8 along=tpot_s",
    "compare accelerator=h200,b200 model=llama31_405b workload=serving_fp8 along=objective.limits.tpt_s:10ms,20ms",
    "compare accelerator=h200,b200 model=llama31_405b workload=serving_fp8 ownership=leased",
    "compare accelerator=h200,b200 model=llama31_405b workload=serving_fp8 facility=mars",
    "compare accelerator=h200,b200 model=llama31_405b workload=serving_fp8 'facility.usd_per_j=0.08 $/kg'",
    "compare accelerator=h200,b200 model=llama31_405b workload=serving_fp8 cluster.device_count=0",
    "compare accelerator=h200,b200 model=llama31_405b workload=serving_fp8 cluster.device_count=sixty",
    "compare accelerator=h200,b200 model=llama31_405b workload=training objective.limits.ttft_s=2s",
    "optimize accelerator=b200 model=llama31_405b workload=serving_fp8 accelerator.price_usd=inf",
    "optimize accelerator=b200 model=llama31_405b workload=serving_fp8 mode=rent",
    "evaluate --from 'vllm serve meta-llama/Llama-3.1-405B -tp eight' accelerator=h200",
    "evaluate --from 'vllm serve meta-llama/Llama-3.1-405B --tensor-paralel 8' accelerator=h200",
    "export no/such/run --to vllm",
    "evaluate --from 'vllm serve'",
    "report one two three",
)
DESIGNER = (
    "optimize experiment=chip_175',",
    "optimize experiment=chip_175B",
    "optimize experiment=chip_175b die.area_mm2=-3",
    "optimize experiment=chip_175b die.package_w=900GB",
    "optimize experiment=chip_175b space.hardware.die_area.low=900 space.hardware.die_area.high=100",
    "optimize experiment=chip_175b space.hardware.nothing.low=900",
    "optimize experiment=chip_175b search=certifed",
    "optimize experiment=chip_175b search.gap=-1",
    "optimize experiment=chip_175b objective.minimise=usd_per_token",
    "optimize experiment=chip_175b objective.minimise=time_s+",
    "optimize experiment=chip_175b objective.limits.capex_usd=0",
    "optimize stack=hbm5",
    "optimize accelerator=h100_sxm accelerator.hbm.bandwidth_bytes_per_s=fast",
    "optimize accelerator=h100_sxm accelerator.hbm.capacity_bytes=80GB/s",
    "optimize accelerator=h100_sxm accelerator.peak_flops_per_s.fp7=1e15",
    "evaluate accelerator=h100_sxm fabric=nvlink9",
    "evaluate accelerator=h100_sxm fabric.bandwidth_bytes_per_s=900Gb/h2",
    "list variables nothing-like-this experiment=no_such",
    "new accelerator my-chip! --conf mine",
    "new accelerator h100_sxm --conf mine",
    "new fabric nvlink4",
    "optimize --conf no_such_folder accelerator=h100_sxm",
)
RESEARCHER = (
    "optimise",
    "optimize search=grid search.resume=no/such/run",
    "optimize -m accelerator=h100_sxm,h201",
    "evaluate plan.tp=3.5",
    "evaluate plan.tp=7",
    "evaluate plan.tpp=8",
    "evaluate plan.tp=",
    "evaluate plan.tp=nan",
    "evaluate model=hub",
    "evaluate model=hub model.path=no_such.json",
    "evaluate model=llama31_8b workload.model.layers=1e400",
    "evaluate model=llama31_8b workload.model.layers=ten",
    "evaluate model=llama31_8b workload.precision.weights=fp3",
    "new fabric 3torus",
    "new nothing my_torus",
    "reproduce no_such_experiment",
    "verify no/such/run",
    "report no/such/run",
    "validate no/such/folder",
    "query no/such/run 'select 1'",
)
ALL = [*ARCHITECT, *DESIGNER, *RESEARCHER]


def test_there_are_sixty():
    assert len(set(ALL)) == len(ALL) >= 60


@pytest.mark.parametrize("command", ALL)
def test_a_mistake_has_one_line(command: str, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = main(command.split() if "'," in command else shlex.split(command))
    told = capsys.readouterr().err
    assert code == 2
    assert told.startswith("codesign: "), told
    assert told.count("\n") == 1, told
    assert "Traceback" not in told
    assert not list(tmp_path.rglob("*.html"))
