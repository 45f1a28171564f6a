# ruff: noqa: E501
"""Launch commands as people write them, and overrides that each means; none is anybody's own."""

MOE = "Qwen/Qwen3-235B-A22B-FP8"
DENSE = "meta-llama/Llama-3.1-70B-Instruct"
SPEC = '{"method": "mtp", "num_speculative_tokens": 1}'

COMMANDS: list[tuple[str, str]] = [
    # Slurm: what a batch script asks for is what its variables hold
    (
        "#!/bin/bash\n#SBATCH --nodes=8\n#SBATCH --ntasks-per-node=1\n"
        "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096"
        " --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --seq-length 8192"
        " --swiglu --vocab-size 128256 --tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 128",
        "cluster.device_count=64 plan.tp=2",
    ),
    (
        "#!/bin/bash\n#SBATCH -N 4\n#SBATCH --ntasks-per-node 8\n"
        "srun python pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336"
        " --num-attention-heads 32 --group-query-attention --num-query-groups 8 --seq-length 8192 --swiglu"
        " --vocab-size 128256 --tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 128",
        "cluster.device_count=32 plan.tp=2",
    ),
    (
        f"python -m sglang.launch_server --model-path {DENSE} --tp 4 --scheduler-recv-interval 11",
        "plan.tp=4 workload.admission_steps=5",
    ),
    # vLLM: spellings of one command
    (f"vllm serve {DENSE}", "model=llama31_70b plan.tp=1 framework=vllm cluster.device_count=1"),
    (f"vllm serve --model {DENSE} -tp 4", "model=llama31_70b plan.tp=4"),
    (f"vllm serve -tp=4 {DENSE}", "plan.tp=4"),
    (f"vllm serve --trust-remote-code {DENSE} --tensor_parallel_size=8", "plan.tp=8"),
    (f"vllm serve {DENSE} \\\n  --tensor-parallel-size 8 \\\n  --max-num-seqs 64\n", "plan.tp=8 plan.micro_batch=64"),
    (f"vllm serve {DENSE} \\ \n  -tp 8 \\  # all of a node\n  -pp 2", "plan.tp=8 plan.pp=2 cluster.device_count=16"),
    (f"# start it\n$ vllm serve {DENSE} -tp 2  # two\n", "plan.tp=2"),
    (f"VLLM_LOGGING_LEVEL=DEBUG CUDA_VISIBLE_DEVICES=0,1 vllm serve {DENSE} -tp 2", "plan.tp=2"),
    (f"export TP=8\nMODEL={DENSE}\nvllm serve $MODEL --tensor-parallel-size ${{TP}}", "model=llama31_70b plan.tp=8"),
    (f"vllm serve {DENSE} --tensor-parallel-size ${{TP:-4}}", "plan.tp=4"),
    (
        f'ARGS=(-tp 4 --max-num-seqs 16)\nvllm serve {DENSE} "${{ARGS[@]}}" > log 2>&1 &\nsleep 5',
        "plan.tp=4 plan.micro_batch=16",
    ),
    (f"nohup vllm serve {DENSE} -tp 2 > /tmp/log 2>&1 &", "plan.tp=2"),
    (f"uv run --with vllm vllm serve {DENSE} -tp 2", "plan.tp=2"),
    (f"bash -c 'pip install x && vllm serve {DENSE} -tp 2'", "plan.tp=2"),
    (f"python -m vllm.entrypoints.openai.api_server --model {DENSE} --tensor-parallel-size 2", "plan.tp=2"),
    (
        f"python3 -m vllm.entrypoints.openai.api_server --model={DENSE} --disable-log-requests --swap-space 16 -tp 2",
        "plan.tp=2",
    ),
    (
        f'docker run --runtime nvidia --gpus all -v ~/.cache:/root/.cache --env "HF_TOKEN=x" -p 8000:8000 --ipc=host '
        f"vllm/vllm-openai:v0.11.0 --model {DENSE} -tp 4",
        "model=llama31_70b plan.tp=4",
    ),
    (
        f"sudo podman run --rm -it --device nvidia.com/gpu=all docker.io/vllm/vllm-openai:latest {DENSE} -tp 4",
        "plan.tp=4",
    ),
    (f'docker run -d --name x --entrypoint bash rocm/vllm:latest -c "vllm serve {DENSE} -tp 8"', "plan.tp=8"),
    (f"docker exec -it box vllm serve {DENSE} -tp 8", "plan.tp=8"),
    (
        f"vllm serve {DENSE} --served-model-name a b --port 8000 --api-key k --enable-auto-tool-choice --tool-call-parser hermes",
        "plan.tp=1",
    ),
    (
        f"cat > c.yaml <<EOF\ntensor-parallel-size: 8\nmax-num-seqs: 32\nkv_cache_dtype: fp8\nEOF\nvllm serve {DENSE} --config c.yaml",
        "plan.tp=8 plan.micro_batch=32 workload.precision.kv_cache=fp8",
    ),
    (
        f"cat > c.yaml <<'EOF'\nmodel: {DENSE}\ntensor-parallel-size: 8\nEOF\nvllm serve --config c.yaml -tp 2",
        "model=llama31_70b plan.tp=2",
    ),
    # vLLM: what is priced
    (
        f"vllm serve {MOE} -tp 4 --data-parallel-size 2 --enable-expert-parallel",
        "plan.tp=4 plan.ep=8 plan.etp=1 plan.attention_dp=1 cluster.device_count=8",
    ),
    (f"vllm serve {MOE} -tp 1 -dp 8", "plan.tp=8 plan.ep=1 plan.attention_dp=8 cluster.device_count=8"),
    (
        f"vllm serve {MOE} -dp 16 -dpl 8 -ep\nvllm serve {MOE} -dp 16 -dpl 8 -dpr 8 --headless -ep",
        "plan.ep=16 cluster.device_count=16",
    ),
    (
        f"vllm serve {DENSE} -tp 8 -pp 2 --nnodes 2 --node-rank 0\nvllm serve {DENSE} -tp 8 -pp 2 --nnodes 2 --node-rank 1",
        "plan.pp=2 cluster.device_count=16",
    ),
    (f"vllm serve {DENSE} -tp 2 --port 1 &\nvllm serve {DENSE} -tp 2 --port 2 &", "plan.tp=2 cluster.device_count=4"),
    (
        f"vllm serve {DENSE} --max-num-batched-tokens 8k --max-num-seqs 192",
        "plan.token_budget=7808 plan.micro_batch=192",
    ),
    (
        f"vllm serve {DENSE} --max-model-len 4k --no-enable-chunked-prefill --max-num-batched-tokens 2048",
        "plan.token_budget=4000",
    ),
    (
        f"vllm serve {DENSE} --quantization fp8 --kv-cache-dtype fp8_e4m3",
        "workload=continuous precision=fp8 workload.precision.kv_cache=fp8",
    ),
    ("vllm serve deepseek-ai/DeepSeek-R1-0528 -tp 8", "model=deepseek_r1 precision=checkpoint"),
    (
        f"vllm serve deepseek-ai/DeepSeek-V3.1 -tp 8 --speculative-config '{SPEC}'",
        "model=deepseek_v3 workload.verified_tokens=2 workload.accepted_tokens=1.85 workload.own_drafts=true",
    ),
    (
        "vllm serve deepseek-ai/DeepSeek-V3.1 --speculative-config.method mtp --speculative-config.num_speculative_tokens 2",
        "workload.verified_tokens=3",
    ),
    (
        f"vllm serve {DENSE} --speculative-model '[ngram]' --num-speculative-tokens 4 --ngram-prompt-lookup-max 4",
        "workload.verified_tokens=5 workload.draft_ratio=0",
    ),
    (f"vllm serve {DENSE} --no-enable-prefix-caching", "workload.cached_ratio=0"),
    (
        f"vllm serve {DENSE} --async-scheduling --block-size 64",
        "workload.async_scheduling=true workload.block_tokens=64",
    ),
    (f"vllm serve {DENSE} --no-async-scheduling", "workload.async_scheduling=false"),
    (f"vllm serve {DENSE} -O3 -cc.pass_config.fuse_attn true --compilation-config.level=3 -O.mode=3", "plan.tp=1"),
    (
        f'vllm serve {DENSE} --hf-overrides \'{{"rope_parameters": {{"factor": 4.0}}}}\' --limit-mm-per-prompt.image 2',
        "plan.tp=1",
    ),
    (
        f'vllm serve {DENSE} -tp 2 --kv-transfer-config \'{{"kv_connector":"NixlConnector","kv_role":"kv_producer"}}\' &\n'
        f'vllm serve {DENSE} -tp 4 --kv-transfer-config \'{{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}}\'',
        "workload=disaggregated prefill=same plan.tp=4 plan.prefill_tp=2 plan.prefill_devices=2 cluster.device_count=4",
    ),
    (
        "vllm serve nvidia/DeepSeek-R1-FP4 -tp 8",
        "model=deepseek_r1 precision=nvfp4 workload.precision.by_class.attention=bf16",
    ),
    ("vllm serve RedHatAI/Meta-Llama-3.1-8B-quantized.w8a8", "model=llama31_8b precision=int8"),
    ("vllm serve someone/Meta-Llama-3.1-8B-Instruct-AWQ", "model=llama31_8b precision=int4"),
    ("vllm serve llama31_8b -tp 2", "model=llama31_8b plan.tp=2"),
    # SGLang
    (f"python -m sglang.launch_server --model-path {DENSE} --tp 8", "framework=sglang plan.tp=8"),
    (f"python3 -m sglang.launch_server --model {DENSE} --tp-size 4 --dp-size 2", "plan.tp=4 cluster.device_count=8"),
    (f"sglang serve --model-path {DENSE} --tp 8 --trust-remote-code", "framework=sglang plan.tp=8"),
    (
        f"docker run --gpus all --shm-size 32g lmsysorg/sglang:latest python3 -m sglang.launch_server --model-path {DENSE} --tp 8",
        "plan.tp=8",
    ),
    (
        "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 16 --dp 16 --enable-dp-attention --moe-a2a-backend deepep"
        " --nnodes 2 --node-rank 0 --dist-init-addr a:1 --max-running-requests 512",
        "plan.tp=1 plan.ep=16 plan.micro_batch=32 cluster.device_count=16",
    ),
    (
        "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --speculative-algorithm EAGLE --speculative-num-steps 3"
        " --speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
        "workload.verified_tokens=4",
    ),
    (
        f"python3 -m sglang.launch_server --model-path {DENSE} --tp 8 --disable-radix-cache --chunked-prefill-size -1 --page-size 64",
        "workload.cached_ratio=0 plan.token_budget=16384 workload.block_tokens=64",
    ),
    (
        f"sglang serve --model-path {DENSE} --disaggregation-mode prefill --tp 4\nsglang serve --model-path {DENSE} --disaggregation-mode decode --tp 8",
        "workload=disaggregated plan.tp=8 plan.prefill_tp=4",
    ),
    # TensorRT-LLM
    (
        f"trtllm-serve {DENSE} --tp_size 8 --max_batch_size 64 --max_num_tokens 4096",
        "framework=trtllm plan.tp=8 plan.micro_batch=64 plan.token_budget=4032",
    ),
    (f"trtllm-serve serve {DENSE} --backend pytorch --tp-size 4", "plan.tp=4"),
    (
        f"cat > extra.yml <<EOF\nenable_attention_dp: true\nkv_cache_config:\n  dtype: fp8\n  enable_block_reuse: false\nspeculative_config:\n  decoding_type: MTP\n"
        f"  num_nextn_predict_layers: 3\nEOF\nmpirun -n 8 trtllm-serve {MOE} --tp_size 8 --ep_size 8 --extra_llm_api_options ./extra.yml",
        "plan.tp=1 plan.ep=8 workload.precision.kv_cache=fp8 workload.cached_ratio=0 workload.verified_tokens=4",
    ),
    # Dynamo
    (
        f"python3 -m dynamo.vllm --model {DENSE} -tp 2 --is-prefill-worker &\npython3 -m dynamo.vllm --model {DENSE} -tp 4 --is-decode-worker",
        "workload=disaggregated plan.tp=4 plan.prefill_tp=2",
    ),
    (
        f"python -m dynamo.sglang --model-path {DENSE} --tp 4 --disaggregation-mode decode --disaggregation-bootstrap-port 1",
        "workload=disaggregated plan.tp=4",
    ),
    (
        "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --disaggregation-mode decode --tp 72 --dp 72 --enable-dp-attention --enable-deepep-moe",
        "plan.ep=72 space.plan.device_count=[72]",
    ),
    (
        "vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 16 -dcp 2 --max-num-seqs 64",
        "model=llama31_70b plan.tp=16 plan.decode_cp=2 plan.micro_batch=64",
    ),
    # trainers
    (
        "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32"
        " --group-query-attention --num-query-groups 8 --swiglu --seq-length 8192 --micro-batch-size 1 --global-batch-size 128"
        " --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 4 --sequence-parallel"
        " --use-distributed-optimizer --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --bf16 --data-path x",
        "model=llama31_8b workload=training workload.sequence=8192 workload.global_batch=128 cluster.device_count=32 plan.tp=4 plan.pp=2"
        " plan.virtual_stages=4 plan.sequence_parallel=1 plan.zero=1 plan.recompute=full",
    ),
    (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32"
        " --group-query-attention --num-query-groups 8 --swiglu --seq-length 8192 --micro-batch-size 1 --global-batch-size 128"
        " --recompute-granularity selective --recompute-modules mlp layernorm --fine-grained-activation-offloading"
        " --offload-modules core_attn attn_proj --activation-offload-fraction 0.5",
        "model=llama31_8b plan.recompute=none plan.recompute_modules=layernorm+mlp plan.offload_activations=0.5"
        " plan.offload_modules=core_attn+attn_proj",
    ),
    (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32"
        " --group-query-attention --num-query-groups 8 --swiglu --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 2"
        " --vocab-size 32000 --seq-length 8192 --micro-batch-size 1 --global-batch-size 128 --context-parallel-size 4 --cp-comm-type a2a+p2p"
        " --hierarchical-context-parallel-sizes 2 2 --moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity"
        " --optimizer dist_muon --muon-tp-mode duplicated",
        "model=mixtral_8x7b plan.cp=4 plan.ulysses=2 plan.ep=2 plan.zero=1 workload.expert_load.capacity_factor=1.25"
        " workload.expert_load.padded=true optimizer=muon workload.optimizer.tp_mode=duplicated workload.optimizer.steps=5",
    ),
    (
        "python3 -m MaxText.train MaxText/configs/base.yml run_name=x model_name=llama3.1-405b per_device_batch_size=2"
        " max_target_length=8192 ici_fsdp_parallelism=512 remat_policy=custom decoder_layer_input=offload attention=flash steps=30",
        "model=llama31_405b framework=maxtext workload.sequence=8192 workload.global_batch=1024 cluster.device_count=512"
        " plan.zero=3 plan.micro_batch=2 plan.recompute=full plan.offload_activations=1 plan.offload_modules=attn_norm",
    ),
    (
        "python3 MaxText/train.py MaxText/configs/base.yml model_name=mixtral-8x7b per_device_batch_size=12 max_target_length=4096"
        " ici_fsdp_parallelism=256 remat_policy=save_dot_except_mlp capacity_factor=1.25",
        "model=mixtral_8x7b workload.global_batch=3072 plan.recompute=none plan.recompute_modules=layernorm+context+moe"
        " workload.expert_load.capacity_factor=1.25 workload.expert_load.padded=true",
    ),
    (
        "torchrun --nproc_per_node 8 --nnodes 2 -m torchtitan.train --model.name llama3 --model.flavor 8B --training.seq_len 8192"
        " --activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option 4",
        "model=llama31_8b plan.recompute=full plan.recompute_share=0.25",
    ),
    (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008"
        " --num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 --pipeline-model-parallel-size 4"
        " --num-layers-per-virtual-pipeline-stage 4 --recompute-granularity full --recompute-method block --recompute-num-layers 1",
        "plan.pp=4 plan.virtual_stages=2 plan.recompute=full plan.recompute_share=0.25",
    ),
    (
        "python3 -m maxtext.trainers.pre_train.train maxtext/configs/base.yml model_name=deepseek3-671b per_device_batch_size=6"
        " max_target_length=8192 ici_fsdp_parallelism=512 remat_policy=custom decoder_layer_input=offload out_proj=offload",
        "model=deepseek_v3 plan.zero=3 plan.recompute_modules=layernorm+qkv_proj+context+mlp+moe+shared_experts"
        " plan.offload_activations=1 plan.offload_modules=attn_norm+mlp_norm",
    ),
    (
        "GPUS=8\nDIST=(--nproc_per_node $GPUS --nnodes 2)\nMODEL_ARGS=(\n  --num-layers 12\n  --hidden-size 768\n  --num-attention-heads 12\n)\n"
        "torchrun ${DIST[@]} pretrain_gpt.py ${MODEL_ARGS[@]} --micro-batch-size 4 --global-batch-size 64 --seq-length 1024 --fp8-format hybrid",
        "workload.model.layers=12 workload.model.hidden=768 workload.model.feed_forward.width=3072 workload.precision.compute=fp8 cluster.device_count=16",
    ),
    (
        "torchrun --nproc_per_node=8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8"
        " --num-experts 8 --moe-router-topk 2 --ffn-hidden-size 14336 --expert-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 256",
        "model=mixtral_8x7b plan.ep=8",
    ),
    (
        "python scripts/performance/setup_experiment.py --model_recipe_name llama3_70b --num_gpus 64 -g h100 -tp 4 -pp 4 -vp 5 -cp 2 -mb 1 -gb 128 -c fp8_cs",
        "model=llama31_70b plan.tp=4 plan.pp=4 plan.virtual_stages=5 plan.cp=2 cluster.device_count=64 workload.precision.compute=fp8",
    ),
    (
        "NGPU=8 ./run_train.sh --model.name llama3 --model.flavor 8B --parallelism.tensor_parallel_degree 2 --training.local_batch_size 1 --training.seq_len 8192",
        "model=llama31_8b plan.tp=2 plan.zero=3 plan.micro_batch=1 workload.global_batch=4 cluster.device_count=8 plan.recompute=full plan.recompute_share=0.5",
    ),
    (
        "torchrun --nproc-per-node 8 --nnodes 2 -m torchtitan.train --module llama3 --config llama3_70b --parallelism.pipeline_parallel_degree 2"
        " --parallelism.fsdp_reshard_after_forward never --training.global_batch_size 64 activation-checkpoint:full",
        "model=llama31_70b plan.pp=2 plan.zero=2 workload.global_batch=64 plan.recompute=full cluster.device_count=16",
    ),
    (
        "NGPU=8 ./run_train.sh --model.name llama3 --model.flavor 8B --training.local_batch_size 1 --training.seq_len 8192"
        " --activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op",
        "model=llama31_8b plan.recompute=none plan.recompute_modules=per_op",
    ),
    (
        "torchrun --nproc-per-node 8 -m torchtitan.train --module llama3 --config llama3_8b activation-checkpoint:selective",
        "model=llama31_8b plan.recompute=none plan.recompute_modules=per_op",
    ),
    (
        '[model]\nname = "llama3"\nflavor = "70B"\n[training]\nlocal_batch_size = 2\nseq_len = 4096\n[parallelism]\ntensor_parallel_degree = 8\n'
        'data_parallel_shard_degree = 4\n[activation_checkpoint]\nmode = "full"\n',
        "model=llama31_70b plan.tp=8 cluster.device_count=32 workload.sequence=4096 workload.global_batch=8 plan.recompute=full",
    ),
]

CONTAINER = """
        - name: engine
          image: vllm/vllm-openai:latest
          command: ["/bin/sh", "-c"]
          args:
            - |
              vllm serve {model} --tensor-parallel-size 8 \\
                --max-num-seqs $SEQS
          env: [{{name: SEQS, value: "128"}}]
          resources: {{limits: {{nvidia.com/gpu: "8"}}}}
"""
MANIFESTS: list[tuple[str, str]] = [
    (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec:\n  replicas: 3\n  template:\n    spec:\n"
        "      nodeSelector: {nvidia.com/gpu.product: NVIDIA-H200}\n      containers:" + CONTAINER.format(model=DENSE),
        "model=llama31_70b plan.tp=8 plan.micro_batch=128 cluster.device_count=24 accelerator=h200",
    ),
    (
        "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n---\napiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a}\nspec:\n  template:\n    spec:\n      containers:\n"
        f"      - image: vllm/vllm-openai\n        args: [--model, {DENSE}, --tensor-parallel-size=4]\n",
        "plan.tp=4 cluster.device_count=4",
    ),
    (
        "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: a}\nspec:\n  replicas: 2\n  leaderWorkerTemplate:\n    size: 2\n"
        "    leaderTemplate:\n      spec:\n        containers:\n"
        + f'        - command: [sh, -c, "bash multi-node.sh leader; vllm serve {DENSE} -tp 8 -pp 2"]\n'
        "    workerTemplate:\n      spec:\n        containers:\n        - command: [sh, -c, bash multi-node.sh worker]\n",
        "plan.tp=8 plan.pp=2 cluster.device_count=32",
    ),
    (
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: a}\nspec:\n  predictor:\n    minReplicas: 1\n    containers:\n"
        f"    - name: kserve-container\n      command: [python, -m, vllm.entrypoints.openai.api_server]\n      args: [--model, {DENSE}, -tp, '2']\n",
        "plan.tp=2",
    ),
    (
        "apiVersion: serving.kserve.io/v1alpha1\nkind: LLMInferenceService\nmetadata: {name: a}\nspec:\n"
        f"  model: {{uri: 'hf://{MOE}', name: m}}\n  replicas: 2\n  parallelism: {{tensor: 4}}\n  template:\n    containers:\n"
        "    - name: main\n      env: [{name: VLLM_ADDITIONAL_ARGS, value: '--max-num-seqs 32'}]\n",
        "model=qwen3_235b_a22b plan.tp=4 plan.micro_batch=32 cluster.device_count=8",
    ),
    (
        f"modelArtifacts:\n  uri: hf://{DENSE}\n  name: {DENSE}\nprefill:\n  replicas: 4\n  parallelism: {{tensor: 2}}\n  containers:\n"
        "  - name: vllm\n    image: ghcr.io/llm-d/llm-d:v0.2\n    modelCommand: vllmServe\n    args: ['--max-num-batched-tokens', '8192']\n"
        "decode:\n  replicas: 1\n  parallelism: {tensor: 8}\n  containers:\n  - name: vllm\n    modelCommand: vllmServe\n    args: []\n",
        "workload=disaggregated plan.tp=8 plan.prefill_tp=2 plan.prefill_devices=8 plan.prefill_token_budget=8192 cluster.device_count=8",
    ),
    (
        "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nmetadata: {name: a}\nspec:\n  services:\n    Frontend: {replicas: 1}\n"
        "    VllmPrefillWorker:\n      subComponentType: prefill\n      replicas: 2\n      extraPodSpec:\n        mainContainer:\n          command: [python3, -m, dynamo.vllm]\n"
        f"          args: [--model, {DENSE}, --tensor-parallel-size, '2', --is-prefill-worker]\n"
        "    VllmDecodeWorker:\n      replicas: 1\n      extraPodSpec:\n        mainContainer:\n          command: [/bin/sh, -c]\n"
        f"          args: ['python3 -m dynamo.vllm --model {DENSE} --tensor-parallel-size 4']\n",
        "workload=disaggregated plan.tp=4 plan.prefill_tp=2 plan.prefill_devices=4 cluster.device_count=4",
    ),
    (
        f"services:\n  engine:\n    image: vllm/vllm-openai:latest\n    environment: [A=b]\n    command: --model {DENSE} --tensor-parallel-size 2\n",
        "plan.tp=2",
    ),
]

REFUSED: list[tuple[str, str]] = [
    ("vllm serve Qwen/Qwen3-32B --tensor-paralel-size 8", "did you mean '--tensor-parallel-size'"),
    ("vllm serve Qwen/Qwen3-32 -tp 8", "of its family: Qwen/Qwen3-32B"),
    ("vllm serve acme/Unheard-7B", "give its config.json"),
    ("vllm serve Qwen/Qwen3-32B -tp eight", "no whole number"),
    ("vllm serve Qwen/Qwen3-32B -tp $TP", "put TP=NUMBER before the command"),
    ("vllm serve Qwen/Qwen3-32B --kv-cache-dtype fp9", "did you mean 'fp8'"),
    ("vllm serve Qwen/Qwen3-32B tp 8", "belongs to no option of vLLM"),
    ("vllm serve Qwen/Qwen3-32B --gpu-memory-utilization 1.5", "above 0 and at most 1"),
    ("vllm serve Qwen/Qwen3-32B --config absent.yaml", "No such file"),
    ("vllm serve 'Qwen", "cannot be read as words of a shell"),
    ("vllm serve", "names no model"),
    ("vllm serve Qwen/Qwen-Image --omni", "image, audio or omni model"),
    ("vllm serve Qwen/Qwen3-ASR-1.7B", "is an audio model"),
    ("vllm serve BAAI/bge-m3", "is an embedding model"),
    ("vllm serve Qwen/Qwen3-8B --runner pooling", "embedding model"),
    ("vllm serve Qwen/Qwen3-8B --speculative-config '{\"method\"'", "--speculative-config"),
    ("python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tpp 8", "has no option '--tpp'"),
    ("python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 8 --dp 3 --enable-dp-attention", "do not divide"),
    ("torchrun train.py", "no command that is read"),
    ("python -m MaxText.train base.yml model_name=llama3.1-8b", "put cluster.device_count=NUMBER beside it"),
    (
        "python -m MaxText.train base.yml model_name=llama3.1-8b ici_data_parallelism=-1",
        "one of them takes what is left",
    ),
    (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 12 --hidden-size 768 --tensor-model-parallel-size 3",
        "no multiple",
    ),
    ("torchrun pretrain_gpt.py --micro-batch-size 1", "says no shape"),
    ("torchrun -m torchtitan.train --model.name llama3 --model.flavor 9B", "no configuration of torchtitan"),
    (
        "torchrun --nproc-per-node 8 -m torchtitan.train --model.name llama3 --model.flavor 8B"
        " --activation_checkpoint.selective_ac_option=ops",
        "is neither op nor a number",
    ),
    ("absent.yaml", "No such file"),
    ("kind: Deployment\nspec: {containers: [{image: nginx}]}", "no container of it starts"),
]
