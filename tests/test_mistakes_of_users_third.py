"""Wrong inputs of the three users, a third time: one line, code 2, no file."""

import shlex

import pytest
from example_run import write_run

from codesign.commands.cli import main

STUDIES = (
    "compare accelerator=h200,b200 model=llama31_405b workload=continuous_fp8 space=training_plans",
    "optimize space=chip workload=static_batch_fp8 model=llama31_70b die=h100_sxm",
    "evaluate accelerator=h100_sxm +calibration/power=wrong",
    "evaluate accelerator=h100_sxm calibration/power=b300",
    "evaluate accelerator=h100_sxm +collective/custom=ring_of_rings",
    "evaluate --from 'vllm serve meta-llama/Llama-3.1-405B -tp 8' accelerator=h100_sxm",
    "evaluate --from 'vllm serve meta-llama/Llama-3.1-405B -tp 8 --quantization fp8 --max-num-seqs 512'",
    "evaluate --from 'python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8' accelerator=h100_sxm",
    "evaluate --from 'vllm serve deepseek-ai/DeepSeek-V3 -tp 8' accelerator=h200 plan.tp=7",
    "evaluate --from 'vllm serve meta-llama/Llama-3.1-8B -tp 2' accelerator=h300",
    "evaluate --from 'vllm serve meta-llama/Llama-3.1-8B -tp 2' search=certified",
    "evaluate model=llama31_405b workload=static_batch_fp8 accelerator=h100_sxm plan.micro_batch=512"
    " cluster.device_count=8",
    "evaluate model=deepseek_v3 workload=static_batch accelerator=l40s cluster.device_count=4",
    "evaluate model=llama31_8b workload=static_batch plan.tp=8 cluster.device_count=12",
    "compare accelerator=h100_sxm,h200 model=llama31_405b workload=static_batch_fp8 ownership=cloud facility=nordic",
    "compare accelerator=h200,mi355x ownership=cloud model=llama31_70b workload=static_batch_fp8 facility.pue=-1",
    "compare accelerator=h200,b200 ownership=on_premises ownership.staff_usd=-100 workload=static_batch_fp8",
    "compare accelerator=h200,b200 ownership=on_premises ownership.residual_ratio=1.5 workload=static_batch_fp8",
    "compare accelerator=h200,b200 ownership=on_premises ownership.usd_per_device_h.h200=3 workload=static_batch_fp8",
    "compare accelerator=h200,b200 model=llama31_70b workload=static_batch_fp8 'facility.usd_per_j=8 ct/kWh'",
    "compare accelerator=h200,b200 model=llama31_70b workload=static_batch_fp8 carbon=mars",
    "compare accelerator=h200 model=llama31_70b",
    "compare accelerator=h200,b200 model=llama31_70b workload=static_batch_fp8 search=mix",
    "compare accelerator=h200,b200 model=llama31_70b objective.maximise=mfu objective.minimise=capex_usd",
    "compare accelerator=h200,b200 -m model=llama31_70b",
    "optimize model=llama31_70b workload=continuous_fp8 accelerator=h200 objective.limits.tpot_s=0",
    "optimize model=llama31_70b workload=continuous_fp8 objective.limits.ttft_p99_s=2s",
    "optimize model=llama31_70b workload=continuous_fp8 accelerator=h200 'objective.floors.tokens_per_s=-5'",
    "optimize model=llama31_70b workload=continuous_fp8 accelerator=h200 'space.plan.token_budget=[0]'",
    "optimize model=llama31_70b workload=continuous_fp8 accelerator=h200 'space.plan.recompute=[none,often]'",
    "optimize model=llama31_70b workload=at_rate accelerator=h200 workload.arrivals_per_s=-1",
    "optimize model=llama31_70b workload=goodput accelerator=h200 workload.slo.ttft_s=soon",
    "optimize model=llama31_70b workload=disaggregated accelerator=h200 prefill=nothing",
    "optimize model=llama31_70b workload=disaggregated accelerator=h200 cluster.prefill.like.accelerator=h900",
    "optimize model=llama31_70b accelerator=h200 search=pareto 'search.minimise=[time_s]'",
    "optimize model=llama31_70b accelerator=h200 search=robust search.draws=0",
    "optimize model=llama31_70b accelerator=h200 search=blackbox search.method=annealing",
    "optimize accelerator=h200 name=",
    "optimize accelerator=h200 path_energy=fast",
    "explore no/such/run",
    "explore model=llama31_8b accelerator=h100_sxm workload=static_batch space=fixed",
)
FILES = (
    "explore experiment=workload_mix",
    "explore RUN nothing",
    "export RUN --to vllm --design 0",
    "export RUN --to vllm --design 99999",
    "export RUN --to k8",
    "export RUN --to sglang",
    "report RUN RUN --reports reports",
    "report RUN no/such/run",
    "report nothing.html",
    "sql RUN 'drop table designs'",
    "sql RUN 'select nothing from designs'",
    "sql RUN 'select * from nothing'",
    "simulate RUN --trace none.csv",
    "simulate model=llama31_8b workload=continuous accelerator=h100_sxm --cv 2",
    "simulate model=llama31_8b workload=continuous accelerator=h100_sxm --rate 1e9",
    "autoscale RUN --load none.csv",
    "autoscale model=llama31_8b workload=goodput accelerator=h100_sxm --load fast.csv",
    "autoscale model=llama31_8b workload=goodput accelerator=h100_sxm --load hours.csv",
    "autoscale model=llama31_8b workload=goodput accelerator=h100_sxm --load load.csv --busiest -2",
    "calibrate empty",
    "calibrate empty --only nothing",
    "calibrate empty --intervals",
    "validate empty",
    "validate empty --json --page x/y.html",
    "scaffold accelerator h100_sxm",
    "scaffold fabric 'my ring'",
    "scaffold workload ../x",
    "scaffold fabric ring --conf mine",
    "scaffold accelerator a/b --conf mine",
    "list accelerator --conf no_such",
    "list variables no_such_word workload=nothing",
    "list metrics experiment=nothing",
    "list limits model=",
    "list fabric nvlink=4",
    "list variables --conf empty ownership=leased",
    "check-plugin no.such.Class",
    "optimize --conf broken accelerator=h100_sxm",
    "evaluate --conf broken accelerator=mine",
    "evaluate --conf theirs fabric=theirs",
    "optimize --conf empty accelerator=my_chip",
    "evaluate model=hf_config model.path=config.json",
    "evaluate workload=training workload.precision.compute=fp4 accelerator=a100_80gb",
    "evaluate accelerator=b200 fabric=nvlink5 fabric.endpoints=0",
    "evaluate accelerator=b200 scale_out=infinibandx",
    "evaluate accelerator=b200 scale_out.fabric.bandwidth_bytes_per_s=400Gbit",
    "evaluate accelerator=tpu_v17 model=llama31_8b",
    "evaluate accelerator=b200 memory=hbm9",
    "evaluate accelerator=b200 reliability=none",
)

ALL = (*STUDIES, *FILES)


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A folder with a run and with files that are wrong in one way each."""
    folder = tmp_path_factory.mktemp("room")
    write_run(folder / "RUN")
    for path, text in {
        "broken/accelerator/mine.yaml": "a: [1\n",
        "theirs/fabric/theirs.yaml": "# @package cluster.network.scale_up.fabric\n_target_: requests.get\n",
        "empty/read.me": "",
        "config.json": '{"model_type": ',
        "fast.csv": "hour,requests_per_s\n0,fast\n",
        "load.csv": "hour,requests_per_s\n0,1\n1,2\n",
        "hours.csv": "",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def test_there_are_sixty_and_more():
    assert len(set(ALL)) == len(ALL) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("command", ALL)
def test_a_mistake_has_one_line_and_leaves_nothing(command: str, capsys, room, monkeypatch):
    monkeypatch.chdir(room)
    before = sorted(room.rglob("*"))
    try:
        code = main(shlex.split(command))
    except SystemExit as left:  # what the parser of arguments refuses
        code = left.code
    said, told = capsys.readouterr()
    assert code == 2
    assert not said
    assert told.startswith("codesign: "), told
    assert told.count("\n") == 1, told
    assert sorted(room.rglob("*")) == before
