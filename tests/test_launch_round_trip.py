"""A plan that is exported and read back is the same plan: 200 random ones an engine, and every manifest."""

import random
from pathlib import Path

import pytest
from test_export import DENSE, FP8, SERVING, SPARSE, TRAINING, run_of

from codesign.commands.export import exported
from codesign.commands.launch import read_launch
from codesign.core.errors import ConfigError
from codesign.model.workloads.plan import PER_OP
from codesign.model.workloads.plan_fields import plan_value, words_of
from codesign.model.workloads.recomputation import PLACES, REMAT_POLICIES, Networks, custom_policy, plan_of_policy

PLANS = 200
READ = ("tp", "pp", "ep", "cp", "attention_dp", "micro_batch", "token_budget")
SCRIPTS = ("vllm", "sglang", "trtllm", "megatron", "torchtitan", "maxtext")
MANIFESTS = ("k8s", "lws", "dynamo", "llm-d")
MAIN = {name: f"{name}.sh" for name in SCRIPTS} | {name: f"{name}.yaml" for name in MANIFESTS}
TRAINED = ("tp", "pp", "cp", "ep", "virtual_stages", "micro_batch", "zero", "sequence_parallel", "recompute")
TRAINED = (*TRAINED, "schedule", "first_stage_less", "last_stage_less")
LISTS = ("recompute_modules", "offload_modules")
TRAINED = (*TRAINED, "offload_activations", "ulysses", *LISTS)
RECOMPUTE = {"none": 0, "selective": 1, "full": 2}


def serving_plan(rng: random.Random, engine: str, *, sparse: bool) -> dict[str, float]:
    """A plan that an engine can say exactly: sequences that groups divide, attention over all ranks or none."""
    tp = rng.choice((1, 2, 4, 8))
    ep = rng.choice((1, 2, 8, 16)) if sparse else 1
    groups = rng.choice([one for one in (1, 2, 4, 8) if tp % one == 0]) if sparse else 1
    if engine == "trtllm":
        groups = tp if ep > 1 else rng.choice((1, tp)) if sparse else 1
    if engine != "sglang" and ep > 1:
        groups = tp  # one scheduler a rank
    whole = ep > 1 and tp > 1 and rng.random() < 0.5  # each expert on one rank, tensor ranks among them
    if engine != "sglang" and ep > 1 and tp > 1 and not whole:
        groups, tp = 1, 1
    if engine == "sglang" and ep > 1:
        groups = 1
    if whole:
        groups, ep = 1, tp * (1 if engine == "trtllm" else rng.choice((1, 2)))
    sequences = groups * rng.choice((1, 3, 16, 64, 100))
    plan: dict[str, float] = {"tp": tp, "ep": ep, "attention_dp": groups, "micro_batch": sequences}
    plan |= {"etp": 1} if whole else {}
    plan |= {"pp": rng.choice((1, 1, 2, 4)), "token_budget": rng.choice((128, 777, 2048, 8192)) + sequences}
    if engine in ("vllm", "sglang") and tp // groups > 1 and rng.random() < 0.3:
        plan["decode_cp"] = 2
    if rng.random() < 0.3:
        plan |= {"prefill_devices": 64, "prefill_tp": rng.choice((1, 2, 4)), "prefill_pp": rng.choice((1, 2))}
        plan |= {"prefill_token_budget": rng.choice((1024, 4096))}
    return plan


def training_plan(rng: random.Random, target: str) -> dict[str, float]:
    tp, pp = rng.choice((1, 2, 4)), rng.choice((1, 2))
    plan: dict[str, float] = {"tp": tp, "pp": pp, "cp": rng.choice((1, 2)), "micro_batch": rng.choice((1, 2, 4))}
    plan |= {"virtual_stages": rng.choice((1, 3)) if pp > 1 else 1, "recompute": rng.choice((0, 1, 2))}
    plan |= {"zero": rng.choice((0, 1, 2, 3) if target == "megatron" else (0, 2, 3)), "ep": 1}
    each = pp * plan["virtual_stages"]
    fewer = [(one, two) for one in range(4) for two in range(4) if (DENSE["layers"] + one + two) % each == 0]
    fewer = [ends for ends in fewer if each > 2 or not all(ends)]  # of two chunks one is full
    if pp > 1 and target == "megatron":
        fewer = [(0, 0), *fewer]
    first, last = rng.choice(fewer) if pp > 1 and fewer else (0, 0)
    plan |= {"first_stage_less": first, "last_stage_less": last, "schedule": 0}
    if pp > 1 and target == "torchtitan" and rng.random() < 0.3:
        plan |= {"schedule": 2, "virtual_stages": 2, "first_stage_less": 0, "last_stage_less": 0}
    plan |= {"recompute_modules": 0, "offload_activations": 0, "offload_modules": 0}
    plan["ulysses"] = rng.choice((1, plan["cp"])) if target == "megatron" else 1
    if target == "megatron" and plan["recompute"] < 2:
        plan["recompute_modules"] = rng.choice((0, 1, 8, 9))  # the norms, the dense network
        if rng.random() < 0.3:
            plan |= {"offload_activations": rng.choice((0.25, 1)), "offload_modules": rng.choice((1, 12, 127))}
    if target == "torchtitan" and plan["recompute"] < 2:
        per_op = plan_value("recompute_modules", PER_OP)
        plan |= {"recompute": 0, "recompute_modules": rng.choice((0, per_op))}
    return plan | {"sequence_parallel": rng.choice((0, 1)) if tp > 1 else 0}


def maxtext_plan(rng: random.Random) -> dict[str, float]:
    """A plan that MaxText can say exactly: equal stages, tensors saved or offloaded by its policies."""
    tp, pp, cp = rng.choice((1, 2, 4)), rng.choice((1, 2)), rng.choice((1, 2, 4))
    plan: dict[str, float] = {"tp": tp, "pp": pp, "cp": cp, "virtual_stages": rng.choice((1, 3)) if pp > 1 else 1}
    plan |= {"ulysses": rng.choice([one for one in (1, 2, 4) if cp % one == 0]), "micro_batch": rng.choice((1, 2, 4))}
    plan["cp_order"] = plan_value("cp_order", rng.choice(("zigzag", "contiguous")) if cp > 1 else "zigzag")
    experts = rng.random() < 0.4 and pp == 1
    plan |= {"ep": rng.choice((1, 2, 4)) if experts else 1, "zero": rng.choice((0, 1, 3))}
    if plan["ep"] > 1 or plan["zero"] == 3:
        plan["zero"] = 3 if 64 // (tp * pp * cp) > 1 else 0
    plan |= {"sequence_parallel": int(tp > 1), "loss_chunks": rng.choice((1, 8))}
    plan |= {"offload_optimizer": rng.choice((0, 1)), "offload_weights": rng.choice((0, 1))}
    networks = Networks(True, plan["ep"] > 1, plan["ep"] > 1)
    if rng.random() < 0.5:
        fields = plan_of_policy(rng.choice(list(REMAT_POLICIES)), networks)
    else:
        places = {name: rng.choice(PLACES) for name in ("query_proj", "context", "out_proj", "mlpwi")}
        places |= {"decoder_layer_input": rng.choice(("device", "offload"))}
        fields = custom_policy(places, networks)
    plan |= {"recompute": RECOMPUTE[fields["recompute"]], "offload_activations": float("offload_modules" in fields)}
    return plan | {name: float(plan_value(name, fields.get(name, "none"))) for name in LISTS}


def _engine(plan: dict[str, float]) -> int:
    """Devices of one engine."""
    cut = plan.get("etp", 0) or plan["tp"]
    return int(plan["pp"] * max(plan["ep"] * cut, plan["tp"]))


def read_back(files: dict[str, str], target: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Written files lie beside the commands that name them."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    return dict(one.split("=", 1) for one in read_launch(str(folder / MAIN[target])).overrides)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "k8s", "lws", "dynamo", "llm-d"])
def test_served_plans_come_back(tmp_path, monkeypatch, engine):
    rng, refused = random.Random(48), 0
    for number in range(PLANS):
        sparse = rng.random() < 0.5
        plan = serving_plan(rng, engine, sparse=sparse)
        run = run_of(tmp_path / f"run{number}", SERVING | {"precision": FP8}, SPARSE if sparse else DENSE, plan)
        try:
            files = exported(run, engine)
        except ConfigError:  # a plan that the engine cannot run
            refused += 1
            continue
        result = read_back(files, engine, tmp_path, monkeypatch)
        usual = {"ep": 1, "cp": 1, "attention_dp": 1}
        assert {key: float(result.get(f"plan.{key}", usual.get(key, 0))) for key in plan} == plan, (plan, result)
        assert result["model"] == (SPARSE if sparse else DENSE)["name"]
        assert float(result["cluster.device_count"]) == max(64 // _engine(plan), 1) * _engine(plan)
    assert refused < PLANS / 10


@pytest.mark.slow
@pytest.mark.parametrize("target", ["megatron", "torchtitan"])
def test_trained_plans_come_back(tmp_path, monkeypatch, target):
    rng = random.Random(48)
    for number in range(PLANS):
        plan = training_plan(rng, target)
        files = exported(run_of(tmp_path / f"run{number}", TRAINING, DENSE, plan), target)
        result = read_back(files, target, tmp_path, monkeypatch)
        result = {"plan.first_stage_less": "0", "plan.last_stage_less": "0", "plan.schedule": "1f1b"} | result
        result["plan.schedule"] = str(words_of("schedule").index(result["plan.schedule"]))
        result = {"plan.offload_activations": "0", "plan.ulysses": "1"} | result
        result |= {f"plan.{key}": str(float(plan_value(key, result.get(f"plan.{key}", "none")))) for key in LISTS}
        told = {key: RECOMPUTE.get(result[f"plan.{key}"], result[f"plan.{key}"]) for key in TRAINED}
        assert {key: float(told[key]) for key in TRAINED} == {key: plan[key] for key in TRAINED}, (plan, result)
        assert (result["cluster.device_count"], result["workload.global_batch"]) == ("64", "1024")


def test_layers_of_a_chunk_that_run_again_come_back(tmp_path, monkeypatch):
    """A third of 126 layers over two stages of three chunks: seven of the 21 of each (Megatron: method block)."""
    plan = dict(tp=1, pp=2, virtual_stages=3, micro_batch=1, zero=1, recompute=2, recompute_share=1 / 3)
    files = exported(run_of(tmp_path / "run", TRAINING, DENSE, plan), "megatron")
    command = " ".join("".join(files.values()).replace("\\\n", " ").split())
    assert "--recompute-method block --recompute-num-layers 7" in command
    result = read_back(files, "megatron", tmp_path, monkeypatch)
    assert result["plan.recompute"] == "full"
    assert float(result["plan.recompute_share"]) == pytest.approx(1 / 3, rel=1e-9)


@pytest.mark.slow
def test_plans_of_maxtext_come_back(tmp_path, monkeypatch):
    rng = random.Random(49)
    for number in range(PLANS):
        plan = maxtext_plan(rng)
        model = SPARSE if plan["ep"] > 1 else DENSE
        run = run_of(tmp_path / f"run{number}", TRAINING, model, plan)
        if plan["ep"] > 1 and 64 // (plan["tp"] * plan["cp"]) % plan["ep"]:
            with pytest.raises(ConfigError, match="of which MaxText takes expert ranks"):
                exported(run, "maxtext")
            continue
        result = read_back(exported(run, "maxtext"), "maxtext", tmp_path, monkeypatch)
        usual = {"ulysses": "1", "loss_chunks": "1", "cp_order": "zigzag", "recompute_modules": "none"}
        told = {key: result.get(f"plan.{key}", usual.get(key, "0")) for key in plan}
        told["offload_modules"] = result.get("plan.offload_modules", "none")
        told["recompute"] = RECOMPUTE[told["recompute"]]
        named = ("cp_order", *LISTS)
        told |= {key: float(plan_value(key, told[key])) for key in named}
        assert {key: float(value) for key, value in told.items()} == plan, (plan, result)
        assert result["model"] == model["name"]
        assert (result["cluster.device_count"], result["workload.global_batch"]) == ("64", "1024")
