"""Wrong inputs of an architect, a chip designer and a researcher, sixty a walk: one line, code 2, no file."""

import shlex

import pytest

from codesign.commands.cli import main

ARCHITECT = (
    "compare accelerator=h1000,h200 model=llama31_405b workload=static_batch_fp8",
    "compare accelerator=h200 model=llama31_405b workload=static_batch_fp8",
    "compare accelerator=h200,b200 model=llama405b workload=static_batch_fp8",
    "compare accelerator=h200,b200 model=llama31_405b workload=serve_fp8",
    "compare accelerator=h200,b200 model=llama31_405b workload=static_batch_fp8 objective.limits.tpot=50ms",
    "compare accelerator=h200,b200 model=llama31_405b workload=static_batch_fp8 objective.limits.tpot_s=50GB",
    "compare accelerator=h200,b200 model=llama31_405b workload=static_batch_fp8 objective.limits.tpot_s=-1",
    "compare accelerator=h200,b200 model=llama31_405b workload=static_batch_fp8 sweep=tpot_s",
    "compare accelerator=h200,b200 model=llama31_405b workload=static_batch_fp8 sweep=objective.limits.tpt_s:10ms,20ms",
    "compare accelerator=h200,b200 model=llama31_405b workload=static_batch_fp8 ownership=leased",
    "compare accelerator=h200,b200 model=llama31_405b workload=static_batch_fp8 facility=mars",
    "compare accelerator=h200,b200 model=llama31_405b workload=static_batch_fp8 'facility.usd_per_j=0.08 $/kg'",
    "compare accelerator=h200,b200 model=llama31_405b workload=static_batch_fp8 cluster.device_count=0",
    "compare accelerator=h200,b200 model=llama31_405b workload=static_batch_fp8 cluster.device_count=sixty",
    "compare accelerator=h200,b200 model=llama31_405b workload=training objective.limits.ttft_s=2s",
    "optimize accelerator=b200 model=llama31_405b workload=static_batch_fp8 accelerator.price_usd=inf",
    "optimize accelerator=b200 model=llama31_405b workload=static_batch_fp8 hardware=rent",
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
    "scaffold accelerator my-chip! --conf mine",
    "scaffold accelerator h100_sxm --conf mine",
    "scaffold fabric nvlink4",
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
    "evaluate model=hf_config",
    "evaluate model=hf_config model.path=no_such.json",
    "evaluate model=llama31_8b workload.model.layers=1e400",
    "evaluate model=llama31_8b workload.model.layers=ten",
    "evaluate model=llama31_8b workload.precision.weights=fp3",
    "scaffold fabric 3torus",
    "scaffold nothing my_torus",
    "reproduce no_such_experiment",
    "verify no/such/run",
    "report no/such/run",
    "validate no/such/folder",
    "sql no/such/run 'select 1'",
)
ARCHITECT_AGAIN = (
    "compare accelerator=h200,b200 model=llama31_405b workload=static_batch_fp8 'space.plan.device_count=[]'",
    "compare accelerator=h200,b200 model=llama31_405b workload=static_batch_fp8 'space.plan.device_count=[64,sixty]'",
    "compare accelerator=h200,b200 workload=static_batch_fp8 'objective.floors.tokens_per_s=2B tokens/fortnight'",
    "compare accelerator=h200,b200 model=llama31_405b workload=static_batch_fp8 facility.pue=0.5",
    "compare accelerator=h200,b200 model=llama31_405b workload=static_batch_fp8 accelerator.price_usd=$28kk",
    "compare accelerator=h200,b200 workload=static_batch_fp8 ownership=cloud ownership.usd_per_device_h.h200=-2",
    "compare accelerator=h200,b200 workload=static_batch_fp8 ownership=on_premises ownership.interest_ratio=8",
    "optimize accelerator=b200 model=llama31_405b workload=static_batch_fp8 'space.plan.tp=[8,8.5]'",
    "compare accelerator=h200,b200 model=llama31_405b workload=static_batch_fp8 sweep=objective.limits.tpot_s:",
    "compare accelerator=h200,b200 workload=static_batch_fp8 sweep=objective.limits.tpot_s:30ms sweep=seed:1,2",
    "compare accelerator=h200,b200 model=llama31_405b workload=static_batch_fp8 objective.limits.capex_usd=5M€",
    "optimize accelerator=b200 model=llama31_405b workload=static_batch_fp8 objective.limits.tpot_s=50 ms",
    "optimize accelerator=b200 model=llama31_405b workload=static_batch_fp8 tpot_s=50ms",
    "optimize accelerator b200",
    "optimize --accelerator=b200",
    "optimize accelerator=b200 model=meta-llama/Llama-3.1-406B",
    "optimize accelerator=b200 accelerator=h200,b200",
    "optimize accelerator=b200 model=llama31_405b workload=static_batch_fp8 search=certified search.seconds=0",
    "optimize accelerator=b200 model=llama31_405b workload=static_batch_fp8 search=certified search.gap=0",
    "optimize accelerator=b200 model=llama31_405b workload=static_batch_fp8 search=certified search.gap=tight",
    "optimize accelerator=b200 model=llama31_405b workload=static_batch_fp8 'space.plan.tp=[]'",
    "optimize objective.limits.capex_usd=nan",
    "optimize objective.limits.capex_usd=-inf",
    "optimize search=inverse search.variable=nothing objective.limits.time_s=4",
    "optimize experiment=train_gpt3_175b,serve_llama31_405b",
    "evaluate --from ''",
    "evaluate --from 'ollama run llama3'",
    "evaluate --from 'vllm serve meta-llama/Llama-3.1-405B -tp 0' accelerator=h200",
    "evaluate --from 'vllm serve meta-llama/Llama-3.1-405B -tp 8 --quantization fp9' accelerator=h200",
    "evaluate --from 'vllm serve my-own/model -tp 8' accelerator=h200",
    'evaluate --from "vllm serve \'meta-llama" accelerator=h200',
    "evaluate --from 'vllm serve meta-llama/Llama-3.1-405B -tp 8 --max-num-seqs lots' accelerator=h200",
    "evaluate --from 'python -m sglang.launch_server --tp 8' accelerator=h200",
    "explore accelerator",
    "explore --port 99999999 accelerator=h100_sxm model=llama31_8b",
    "explore --port -1 accelerator=h100_sxm model=llama31_8b",
    "explore --port http accelerator=h100_sxm",
    "export . --to vllm",
    "export .",
    "export . --to vlm",
    "autoscale workload=goodput",
    "autoscale workload=goodput --load none.csv",
    "autoscale model=llama31_8b workload=training --load none.csv",
    "autoscale",
)
DESIGNER_AGAIN = (
    "optimize 'space.hardware.x={path: nothing.there, low: 1, high: 2}'",
    "optimize 'space.hardware.x={path: cluster.accelerator.hbm.capacity_bytes, low: 80GB}'",
    "optimize 'space.hardware.x={low: 1, high: 2}'",
    "optimize 'space.hardware.x={path: cluster.accelerator.hbm.capacity_bytes, low: 80GB, high: 80GB}'",
    "optimize die.clock_hz=3GB experiment=chip_175b",
    "optimize experiment=chip_175b objective.limits.provisioned_power_w=1.6MWh",
    "optimize experiment=chip_175b space.hardware.engine_area.low=-5",
    "optimize experiment=chip_175b space.hardware.engine_area.path=die.nothing",
    "optimize experiment=chip_175b stack=hbm3,hbm4",
    "optimize experiment=chip_175b die=none",
    "optimize experiment=chip_175b 'space.hardware.hbm.tied=[nowhere]'",
    "evaluate accelerator.hbm.bandwidth_bytes_per_s=3TB",
    "evaluate accelerator.hbm.capacity_bytes=-80GB",
    "evaluate 'accelerator.peak_flops_per_s.bf16=989 teraflop'",
    "evaluate 'accelerator.peak_flops_per_s.bf16=fast'",
    "evaluate calibration=my_h100",
    "evaluate --conf /dev/null accelerator=h100_sxm",
    "scaffold accelerator My --conf mine",
    "scaffold accelerator my_chip --conf mine --package mine",
    "scaffold search class",
    "scaffold model llama31_8b --conf mine",
    "scaffold fabric my-fabric",
)
RESEARCHER_AGAIN = (
    "optimize objective.minimise=null",
    "optimize -m accelerator=h100_sxm,h200 hydra/launcher=nothing",
    "evaluate +foo=1",
    "--verison",
    "optimize objective.minimise=",
    "optimize objective.minimise='capex_usd ** time_s'",
    'optimize objective.minimise=\'__import__("os").system("true")\'',
    "optimize search=pareto 'search.minimise=[time_s,nothing]'",
    "optimize runner=local workers=many",
    "optimize runner=kubernetes",
    "optimize --cfg nonsense",
    "optimize seed=-1",
    "optimize seed=lucky",
    "evaluate --top -3",
    "evaluate --top many",
    "evaluate workload.sequence=0",
    "evaluate workload.sequence=2.5",
    "evaluate workload.global_batch=7",
    "evaluate workload.nothing=3",
    "evaluate ~plan.nothing",
    "evaluate model=hf_config model.path=/dev/null",
    "evaluate model=hf_config model.path=.",
    "evaluate plan=zero9",
    "evaluate framework=pytorch",
    "evaluate quantity=3=4",
    "evaluate accelerator=h100_sxm,h200",
    "evaluate model=null",
    "evaluate plan.tp=true",
    "evaluate plan.recompute=sometimes",
    "evaluate plan.zero=5",
    "list no_such_group",
    "list variables accelerator=nothing",
    "sql . 'select 1'",
    "verify .",
    "verify . --attack many",
    "simulate no/such/run",
    "simulate model=llama31_8b workload=training",
    "simulate model=llama31_8b workload=continuous --rate -1",
    "simulate model=llama31_8b workload=continuous --requests 0",
    "calibrate no/such/folder",
    "validate --schema --page x.html nowhere",
    "train-amortised nofamily",
    "check-plugin NoSuchClass",
    "reproduce serve_fabric",
    "reproduce photonic_link nothing",
    "optimize -x",
    "simulat",
)
FIRST = [*ARCHITECT, *DESIGNER, *RESEARCHER]
SECOND = [*ARCHITECT_AGAIN, *DESIGNER_AGAIN, *RESEARCHER_AGAIN]
ALL = [*FIRST, *SECOND]


def test_there_are_sixty_twice():
    assert len(set(ALL)) == len(ALL)
    assert min(len(FIRST), len(SECOND)) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("command", ALL)
def test_a_mistake_has_one_line(command: str, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = main(command.split() if command.endswith("',") else shlex.split(command))
    except SystemExit as left:  # what the parser of arguments refuses
        code = left.code
    said, told = capsys.readouterr()
    assert code == 2
    assert not said
    assert told.startswith("codesign: "), told
    assert told.count("\n") == 1, told
    assert "Traceback" not in told
    assert not list(tmp_path.rglob("*"))
