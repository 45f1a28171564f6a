"""Measured static-batch inference: fixed batch, fixed input and output lengths.

A row with a throughput is compared by its output tokens per second and GPU, a row with only a first-token latency by
that. Kernels take the reference framework's constants whatever engine served the row; nothing is fitted here.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.errors import ConfigError
from ...model.metrics import evaluate
from ...model.scenario import Cluster, Scenario
from ...model.workloads import Plan, Precision, StaticBatch
from ..measurements import FoundTable
from .batches import anonymous, batches, grouped, sized, vectorised
from .published_training import FORMATS, Predicted
from .trained_models import configured_model

MODELS = {
    "GPT-J 6B": "gpt_j_6b",
    "LLaMA 7B": "llama2_7b",
    "LLaMA-2 7B": "llama2_7b",
    "LLaMA 13B": "llama2_13b",
    "LLaMA-2 13B": "llama2_13b",
    "LLaMA 70B": "llama2_70b",
    "LLaMA-2 70B": "llama2_70b",
    "Llama-3.1-70B": "llama31_70b",
    "Llama-3.1-8B": "llama31_8b",
    "Falcon 180B": "falcon_180b",
    "DBRX-Instruct": "dbrx",
}


def static_batch(row: Any, cluster: Cluster) -> Scenario:
    """One measured batch."""
    if row.model not in MODELS:
        raise ConfigError(f"model {row.model!r} has no configuration")
    number_format = FORMATS.get(str(row.precision), str(row.precision))
    precision = Precision(compute=number_format, weights=number_format, kv_cache=number_format)
    model = replace(configured_model(MODELS[row.model]), name="")
    plain, precision = anonymous(cluster, precision)
    answered = 1.0 if row.output_tokens != row.output_tokens else row.output_tokens
    job = StaticBatch(model, input_tokens=max(row.input_tokens, 1.0), output_tokens=answered, precision=precision)
    return Scenario(sized(plain, row.tp), job, Plan(tp=row.tp, micro_batch=row.batch_size))


def _rate_and_first(scenario: Scenario):
    metrics = evaluate(scenario)
    return metrics.tokens_per_s / scenario.cluster.device_count, metrics.extra["ttft_s"]


_priced = vectorised(_rate_and_first)


def predict(found: FoundTable, clusters: Callable[[str], Cluster], messages: list[str]) -> Predicted:
    """Predict every row: `measured` and `predicted`, in tokens/s a GPU or in seconds as `quantity` says."""
    table, refused = found.rows(messages), {}
    kept, scenarios = [], []
    for row in table.itertuples():
        try:
            scenarios.append(static_batch(row, clusters(row.gpu)))
            kept.append(row.Index)
        except ConfigError as error:
            refused[str(error)] = refused.get(str(error), 0) + 1
    if not kept:
        return Predicted(table.iloc[:0].assign(measured=[], predicted=[], quantity=[]), refused)
    rate, first = grouped(batches(scenarios), _priced)
    frame = table.loc[kept].copy()
    only_first = frame["output_tokens_per_s_per_gpu"].isna()
    frame["quantity"] = np.where(only_first, "first_token_latency", "output_tokens_per_s_per_gpu")
    frame["measured"] = np.where(
        only_first, frame["first_token_latency_ms"] * 1e-3, frame["output_tokens_per_s_per_gpu"]
    )
    frame["predicted"] = np.where(only_first, first, rate)
    return Predicted(frame, refused)
