"""Post-training by reinforcement: rollouts, scoring, updates and new weights, in four ways to take turns."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float

from ...core.errors import ConfigError
from ...core.fields import Module, integer, quantity, static, switch
from ...core.smooth import at_least, at_most, ceil, maximum
from .base import AbstractWorkload, FamilyVocabulary
from .continuous import ContinuousServing
from .engine_memory import EngineMemory
from .layer_operations import Precision
from .lowering import beyond
from .mixed_step import MixedStep
from .optimizer import AbstractOptimizer, Adam
from .plan import Layout
from .plan_fields import AbstractPlan
from .post_training_plan import (
    ASYNCHRONOUS,
    COLOCATED,
    MODES,
    ONE_STEP_OFF,
    RESHARD,
    ROLLOUT,
    SYNC,
    PostTrainingPlan,
    as_generated,
    as_trained,
    renamed,
)
from .response_lengths import LEVELS, DrainingBatch, ResponseLengths, cut_lengths, drained
from .schedule import CommOp, Op, Pass, Priced, Timeline, TransferOp, one_pass, total
from .training import Training
from .training_memory import Classes, TrainerBuffers, near_bytes
from .transformer import Transformer

DECODES = tuple(f"rollout_{level}" for level in range(LEVELS))
"""Phases of a decode step, from all slots to one."""
PROMPTED, ANEW = "rollout_prompts", "rollout_caches"
SCORING, SWITCHING = "scoring", "switching"
TRAINER = ("forward", "backward", "recompute", "gradients", "parameters", "optimizer")
STATE = ("weights", "gradients", "optimizer")  # of the trainer, which it keeps between steps

WORDS = FamilyVocabulary(
    "RL post-training",
    "training step",
    headline=("time_s", "rollout_s", "training_s", "weight_sync_s", "tokens_per_s"),
    metrics={
        "rollout_s": ("Rollouts of a step", "s"),
        "training_s": ("Scoring and updates of a step", "s"),
        "weight_sync_s": ("New weights to rollouts", "s"),
        "switch_s": ("Switch between rollouts and training", "s"),
        "rollout_utilisation": ("Rollout devices at work", "%"),
        "trainer_utilisation": ("Trainer devices at work", "%"),
        "slot_utilisation": ("Rollout slots in use", "%"),
        "responses_per_s": ("Responses per second", "count"),
        "mean_response_tokens": ("Mean response", "tokens"),
        "rollout_memory_bytes": ("Memory of a rollout device", "B"),
        "trainer_memory_bytes": ("Memory of a trainer device", "B"),
    },
    parts={
        "rollouts": "rollouts that training waits for", "scoring": "log-probabilities", "updates": "updates",
        "sync": "new weights", "switch": "switch of what is in memory",
    },
    memory={
        "rollout_weights": "rollout weights", "engine": "rollout engine", "swapped": "trainer state at rest",
        "scorers": "reference and reward models",
    },
    plan={
        "mode": "{}", "rollout_devices": "{:g} devices for rollouts", "rollout_tp": "rollout TP {:g}",
        "rollout_ep": "rollout EP {:g}", "rollout_slots": "{:g} responses together",
    },
)  # fmt: skip


class RolloutEngine(Module):
    """Engine of the rollouts: formats, overheads and memory, as of `ContinuousServing`."""

    precision: Precision = Precision()
    step_overhead_s: Float[Array, "*b"] = quantity(default=0.0)
    sequence_overhead_s: Float[Array, "*b"] = quantity(default=0.0)
    sampling_s: Float[Array, "*b"] = quantity(default=0.0, doc="to choose a token, for each word of the vocabulary")
    expert_layer_s: Float[Array, "*b"] = quantity(default=0.0, doc="of a layer in a step, beside products")
    kernel_slowdown: Float[Array, "*b"] = quantity(low=0.1, high=1e3, default=1.0)
    launch_s: Float[Array, "*b"] = quantity(default=0.0, doc="the host's time to issue one kernel")
    workspace_bytes: Float[Array, "*b"] = quantity(default=0.0)
    block_tokens: Float[Array, "*b"] = integer(low=1.0, high=1e6, default=16.0, doc="of a block of the cache")
    async_scheduling: bool = static(default=False)
    engine_memory: EngineMemory = eqx.field(default_factory=EngineMemory)


ENGINE = tuple(field.name for field in dataclasses.fields(RolloutEngine))


class RlPostTraining(AbstractWorkload):
    """One step: `prompts` x `responses` rollouts, their log-probabilities, `updates` optimizer steps, new weights.

    Composed of the package's own parts. Rollouts: steps of `ContinuousServing` at a few batches, as many of each as
    `response_lengths.drained` says. Training: `Training` on packed sequences, `updates` times; log-probabilities of the
    old policy, of a reference and of a reward model are its forward pass. With R the rollouts of a step, waited for to
    the last, U scoring and updates of u mini-batches, W new weights, S a switch:

        colocated      R + U + W + S, on all devices
        synchronous    R + U + W
        one_step_off   max(R, U) + W
        asynchronous   max(G, U, (1 - a) G + U / u) + W

    where G is R waited for until a share `staleness` of a step's responses is still under way: these began before the
    weights of their step, and go on through new ones; a = min(staleness, 1). Where `recompute_cache`, their caches are
    computed again by the new weights.

    Factors are constants of plan and lengths: time is a sum and maximum of step times, log-convex in the hardware.

    W: the devices that hold the same part of an engine's weights gather it, in the rollouts' format, from the trainer's
    over the networks between them, each piece passed on as it comes; shared devices gather them from each other.

    Assumes: sequences are packed without padding, micro-batches by tokens; weights that ZeRO shards are gathered beside
    new ones on their way, and for scoring beside its work; rewards that a rule gives take no time; one kind of
    accelerator.
    Source: modes [verl_async] [verl_one_step_off]; interrupted rollouts and the bound on staleness [fu2025areal].
    """

    plan_class: ClassVar[type[AbstractPlan]] = PostTrainingPlan
    words: ClassVar[FamilyVocabulary] = WORDS

    model: Transformer
    prompts: Float[Array, "*b"] = integer(low=1.0, high=1e9, doc="of one step")
    responses: Float[Array, "*b"] = integer(low=1.0, high=1e6, doc="to each prompt (the group of GRPO)")
    input_tokens: Float[Array, "*b"] = quantity(low=1.0, usual=(1.0, 1e7, "the longest published context"))
    output_tokens: Float[Array, "*b"] = quantity(
        low=2.0, usual=(2.0, 1e7, "the longest published context"), doc="of a response, mean before the cut"
    )
    max_output_tokens: Float[Array, "*b"] = quantity(low=2.0, high=1e9, doc="where a response is cut")
    output_cv: Float[Array, "*b"] = quantity(high=10.0, default=1.0)
    updates: Float[Array, "*b"] = integer(
        low=1.0, high=1e6, default=1.0, doc="optimizer steps (mini-batches) of a step"
    )
    old_log_probs: Float[Array, "*b"] = switch(default=1.0, doc="the trainer computes those of the old policy")
    reference: Float[Array, "*b"] = switch(default=0.0, doc="a reference model of the same shape scores")
    reward_model: Float[Array, "*b"] = switch(default=0.0, doc="a reward model of the same shape scores")
    shared_prompts: Float[Array, "*b"] = switch(default=1.0, doc="a prompt is computed once for its responses")
    recompute_cache: Float[Array, "*b"] = switch(default=1.0, doc="asynchronous: caches anew after new weights")
    switch_overhead_s: Float[Array, "*b"] = quantity(default=0.0, doc="of a switch beside what is moved, colocated")
    sync_overhead_s: Float[Array, "*b"] = quantity(default=0.0, doc="of new weights beside what is moved")
    rollout: RolloutEngine = eqx.field(default_factory=RolloutEngine)
    precision: Precision = Precision()
    optimizer: AbstractOptimizer = eqx.field(default_factory=Adam)
    step_overhead_s: Float[Array, "*b"] = quantity(default=0.0, doc="of an update")
    kernel_slowdown: Float[Array, "*b"] = quantity(low=0.1, high=1e3, default=1.0, doc="of the trainer")
    launch_s: Float[Array, "*b"] = quantity(default=0.0, doc="the trainer host's time to issue one kernel")
    buffers: TrainerBuffers = eqx.field(default_factory=TrainerBuffers)

    def __check_init__(self) -> None:
        """Responses that are not cut on average."""
        mean, most = self.output_tokens, self.max_output_tokens
        if not any(isinstance(one, Tracer) for one in (mean, most)) and bool(jnp.any(jnp.asarray(mean) > most)):
            raise ConfigError(
                f"workload.output_tokens = {float(jnp.max(jnp.asarray(mean))):g} must be at most"
                f" workload.max_output_tokens = {float(jnp.min(jnp.asarray(most))):g}, where responses are cut"
            )

    @classmethod
    def example(cls) -> "RlPostTraining":
        """Four responses to each of eight prompts."""
        return cls(Transformer.example(), 8.0, 4.0, 64.0, 128.0, 512.0)

    # what a step has to do

    def count(self) -> Array:
        """Responses of a step."""
        return self.prompts * self.responses

    def lengths(self) -> ResponseLengths:
        """Lengths of responses, cut."""
        return cut_lengths(self.output_tokens, self.output_cv, self.max_output_tokens)

    def tokens_per_step(self) -> Array:
        """Tokens of prompts and responses that a step trains on."""
        return self.count() * (self.input_tokens + self.lengths().mean())

    def scorings(self) -> Array:
        """Passes over all sequences without a gradient."""
        return self.old_log_probs + self.reference + self.reward_model

    def engine(self) -> ContinuousServing:
        """Rollouts as serving in a closed loop: the same steps, prompts and cache."""
        options = {name: getattr(self.rollout, name) for name in ENGINE}
        lengths = self.lengths()
        cached = self.shared_prompts * at_most(1 - 1 / self.responses, 0.999)
        return ContinuousServing(
            self.model, self.input_tokens, at_least(lengths.mean(), 2.0), output_cv=lengths.cv(), cached_ratio=cached,
            **options,
        )  # fmt: skip

    def packed(self) -> Array:
        """Tokens of a packed sequence: that of a mean token, so that as many tokens are attended as a step attends."""
        lengths = self.lengths()
        square = self.input_tokens**2 + 2 * self.input_tokens * lengths.mean() + lengths.square()
        return square / (self.input_tokens + lengths.mean())

    def longest(self) -> Array:
        """Tokens of the longest sequence."""
        return ceil(self.input_tokens + self.lengths().tokens[-1])

    def trainer(self, layout: Layout, *, scoring: bool = False) -> tuple[Training, Layout]:
        """Training on packed sequences and its layout, of the trainer's part of a layout.

        A micro-batch takes as many tokens as `plan.micro_batch` of the longest sequences; tokens are spread evenly over
        the fewest that hold them.
        """
        plan = layout.plan
        tokens = self.tokens_per_step() / jnp.where(scoring, 1.0, self.updates) / layout.dp
        count = at_least(ceil(tokens / (plan.micro_batch * self.longest())), 1.0)
        ranks = plan.cp * plan.tp
        sequence = ceil(self.packed() / ranks) * ranks
        each = tokens / count / sequence
        return self._training(sequence, each * count * layout.dp, scoring), _with_micro_batch(layout, each)

    def fullest(self, layout: Layout) -> tuple[Training, Layout]:
        """Training on full micro-batches, one sequence as long as one, by which memory is sized."""
        step, trained = self.trainer(layout)
        ranks = layout.plan.cp * layout.plan.tp
        sequence = ceil(layout.plan.micro_batch * self.longest() / ranks) * ranks
        batch = step.micro_batches(trained) * layout.dp
        return self._training(sequence, batch, False), _with_micro_batch(layout, jnp.ones_like(sequence))

    def _training(self, sequence: Array, batch: Array, scoring: bool) -> Training:
        return Training(
            self.model, sequence, batch, self.precision, self.optimizer, self.step_overhead_s, self.kernel_slowdown,
            self.launch_s, forward_only=scoring, buffers=self.buffers,
        )  # fmt: skip

    def drain(self, layout: Layout) -> DrainingBatch:
        """Decode steps of a step's rollouts on one engine."""
        theirs = as_generated(layout)
        each = self.count() / theirs.dp
        stale = self._goes_on(layout) * layout.plan.staleness
        return drained(self.lengths(), self.input_tokens, each, theirs.plan.micro_batch, theirs.dp, stale)

    def prompt_steps(self, layout: Layout) -> Array:
        """Full chunks of prompts that one engine computes for its responses of a step."""
        return self.count() / layout.dp * self.engine().computed_tokens() / layout.plan.token_budget

    # operations

    def number_format(self) -> str:
        """The trainer's format of matrix products."""
        return self.precision.compute

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Steps of rollouts at each batch and with prompts; scoring; an update; new weights; a switch."""
        mine, theirs = as_trained(layout), as_generated(layout)
        scored = [
            dataclasses.replace(op, phase=SCORING)
            for op in _lowered(self.trainer(mine, scoring=True))
            if op.phase == "forward"
        ]
        return (*self._generated(layout, theirs), *scored, *_lowered(self.trainer(mine)), *self._moved(layout))

    def _generated(self, undivided: Layout, layout: Layout) -> list[Op]:
        """Decode steps at each batch, and chunks of prompts and of caches, of the rollouts' layout."""
        engine, steps = self.engine(), self.drain(undivided)
        one, ops = engine.decode_step(layout), list[Op]()
        layers = engine.layers_per_stage(layout)
        for index, phase in enumerate(DECODES):
            step = dataclasses.replace(one, decodes=steps.batch[index], context=steps.context[index])
            ops += step.lower(layout, layers, steps.batch[index], phase=phase, mixed=False)
        one = dataclasses.replace(one, decodes=steps.batch[0], context=steps.context[0])
        for phase, prompt in ((PROMPTED, engine.computed_tokens()), (ANEW, engine.context())):
            chunk = self._chunk(one, layout, prompt)
            scored = one.decodes + chunk.prompt_tokens / prompt
            ops += chunk.lower(layout, layers, scored, phase=phase, mixed=True)
        return [dataclasses.replace(op, axis=renamed(op.axis)) if isinstance(op, CommOp) else op for op in ops]

    def _chunk(self, step: MixedStep, layout: Layout, prompt: Array) -> MixedStep:
        """A decode step with as many prompt tokens as it takes, of prompts that all come at once."""
        tokens = layout.plan.token_budget
        prompts = at_least(tokens / prompt, 1.0)
        keys = 0.5 * prompt + self.input_tokens * (prompt < self.input_tokens)
        return dataclasses.replace(step, prompt_tokens=tokens, prompts=prompts, keys=keys, shared_tokens=tokens)

    def _moved(self, layout: Layout) -> list[Op]:
        """New weights over the network between both parts, or among shared devices; state swapped out and in."""
        one, plan = jnp.asarray(1.0), layout.plan
        weights = self.engine().weight_bytes(as_generated(layout))
        state = self._state_bytes(as_trained(layout)) * plan.together() * plan.swap
        return [
            CommOp("weights", "all_gather", SYNC, SYNC, weights, 1 - plan.together()),
            CommOp("weights_gathered", "all_gather", RESHARD, RESHARD, weights, plan.together()),
            TransferOp("state", SWITCHING, 2 * state, one),
        ]

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Runs of each kind of step in one step of training."""
        mine = as_trained(layout)
        plain, prompted = self._steps(layout)
        (trainer, trained), (scorer, scored) = self.trainer(mine), self.trainer(mine, scoring=True)
        often = {phase: self.updates * times for phase, times in trainer.repeats(trained).items()}
        often |= {SCORING: self.scorings() * scorer.micro_batches(scored), SYNC: jnp.asarray(1.0)}
        often |= {RESHARD: jnp.asarray(1.0), SWITCHING: jnp.asarray(1.0), PROMPTED: prompted}
        often[ANEW] = self._cached_anew(layout)
        return often | {phase: plain[index] for index, phase in enumerate(DECODES)}

    # time

    def _steps(self, layout: Layout) -> tuple[Array, Array]:
        """(decode steps at each batch without prompts, chunks of prompts) of one engine in a step of training.

        A chunk takes the place of a decode step, of the fullest first.
        """
        steps, prompts = self.drain(layout).steps, self.prompt_steps(as_generated(layout))
        before = jnp.concatenate([jnp.zeros(1), jnp.cumsum(steps)[:-1]])
        return at_least(steps - at_least(prompts - before, 0.0), 0.0), prompts

    def _goes_on(self, layout: Layout) -> Array:
        """1 where rollouts go on through new weights."""
        return jnp.where(layout.plan.mode == ASYNCHRONOUS, 1.0, 0.0)

    def _cached_anew(self, layout: Layout) -> Array:
        """Chunks that compute the caches of what is under way again after new weights."""
        theirs = as_generated(layout)
        left = at_most(layout.plan.staleness * self.count() / theirs.dp, theirs.plan.micro_batch)
        tokens = self._goes_on(layout) * left * self.engine().context()
        return self.recompute_cache * tokens / theirs.plan.token_budget

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """See the class."""
        plan, mine, theirs = layout.plan, as_trained(layout), as_generated(layout)
        rollout_s, rollout_j = self._rollouts(priced, layout, theirs)
        trainer_costs = [(op, cost) for op, cost in priced if op.phase in TRAINER]
        (trainer, trained), (scorer, passed) = self.trainer(mine), self.trainer(mine, scoring=True)
        update = trainer.timeline(trainer_costs, trained)
        forward = [(dataclasses.replace(op, phase="forward"), cost) for op, cost in priced if op.phase == SCORING]
        scored = scorer.timeline(forward, passed)
        scoring_s, updates_s = self.scorings() * scored.time_s, self.updates * update.time_s
        training_s = scoring_s + updates_s
        sync, gathered = total(priced, SYNC, CommOp), total(priced, RESHARD, CommOp)
        sync_s = sync.time_s + gathered.time_s + self.sync_overhead_s
        switched = total(priced, SWITCHING, TransferOp)
        switch_s = switched.time_s + plan.together() * self.switch_overhead_s

        fresh = 1 - at_most(plan.staleness, 1.0)
        one_by_one = rollout_s + training_s
        side_by_side = maximum(rollout_s, training_s)
        flowing = maximum(side_by_side, fresh * rollout_s + training_s / self.updates)
        busy = jnp.where(plan.mode == ASYNCHRONOUS, flowing, one_by_one)
        busy = jnp.where(plan.mode == ONE_STEP_OFF, side_by_side, busy)
        time = busy + sync_s + switch_s

        share = jnp.where(plan.rollout_devices > 0, at_most(plan.rollout_devices / layout.devices, 1.0), 1.0)
        trains = jnp.where(plan.rollout_devices > 0, 1 - share, 1.0)
        energy = share * rollout_j + trains * (self.scorings() * scored.energy_j + self.updates * update.energy_j)
        energy = energy + sync.energy_j + gathered.energy_j + switched.energy_j
        parts = {"rollouts": busy - training_s, "scoring": scoring_s, "updates": updates_s, "sync": sync_s}
        parts["switch"] = switch_s
        lengths = self.lengths()
        slot_steps = theirs.plan.micro_batch * theirs.dp * self.drain(layout).steps.sum()
        extra = {
            "rollout_s": rollout_s, "training_s": training_s, "scoring_s": scoring_s, "weight_sync_s": sync_s,
            "switch_s": switch_s, "rollout_utilisation": rollout_s / time, "trainer_utilisation": training_s / time,
            "slot_utilisation": at_most(self.count() * lengths.mean() / slot_steps, 1.0),
            "responses_per_s": self.count() / time, "mean_response_tokens": lengths.mean(),
            "rollout_memory_bytes": _whole(self.rollout_classes(layout)),
            "trainer_memory_bytes": near_bytes(self.trainer_classes(mine), mine),
        }  # fmt: skip
        return Timeline(time, parts, energy, self.tokens_per_step(), self.model_flops(), extra)

    def _rollouts(self, priced: Priced, layout: Layout, theirs: Layout) -> tuple[Array, Array]:
        """(seconds, joules of one device) of a step's rollouts."""
        engine, drain = self.engine(), self.drain(layout)
        plain, prompted = self._steps(layout)
        seconds, joules = jnp.asarray(0.0), jnp.asarray(0.0)
        for index, phase in enumerate(DECODES):
            done = self._pass(priced, phase, engine, theirs)
            host = engine.with_host_s(engine.device_s(done, drain.batch[index], theirs), drain.batch[index])
            seconds, joules = seconds + plain[index] * host, joules + plain[index] * done.energy_j
        anew = self._cached_anew(layout)
        for phase, times in ((PROMPTED, prompted), (ANEW, anew)):
            done = self._pass(priced, phase, engine, theirs)
            host = engine.with_host_s(engine.device_s(done, drain.batch[0], theirs), drain.batch[0])
            seconds, joules = seconds + times * host, joules + times * done.energy_j
        return seconds, joules

    def _pass(self, priced: Priced, phase: str, engine: ContinuousServing, layout: Layout) -> Pass:
        """One step, its axes named as a serving plan names them."""
        costs = [
            (dataclasses.replace(op, axis=op.axis.removeprefix(ROLLOUT)) if isinstance(op, CommOp) else op, cost)
            for op, cost in priced
            if op.phase == phase
        ]
        return one_pass(costs, phase, layout.plan, engine.kernel_slowdown, engine.launch_s)

    def model_flops(self) -> Array:
        """FLOPs of a step that the model itself needs: tokens generated, scored and trained on."""
        passes = 1 + self.scorings() + 3
        return passes * self.tokens_per_step() * self.model.forward_flops_per_token(0.5 * self.packed())

    # memory

    def rollout_classes(self, layout: Layout) -> Classes:
        """Memory of an engine: weights, caches at the fullest moment, what it keeps beside; of the whole layout."""
        engine, theirs, drain = self.engine(), as_generated(layout), self.drain(layout)
        result = engine.footprint(theirs)
        beside = result["working"][0] + result["graphs"][0]
        held = drain.held + 0.5 * engine.block_tokens * drain.batch[0]
        weights, cache = result["weights"][0], engine.kv_bytes_per_token(theirs) * held
        return {"rollout_weights": (weights, weights), "kv_cache": (cache, cache), "engine": (beside, beside)}

    def trainer_classes(self, layout: Layout) -> Classes:
        """Memory of a trainer's device at its peak; models that score beside."""
        step, full = self.fullest(layout)
        scorer, trained = self.trainer(layout, scoring=True)
        scored = (self.reference + self.reward_model) * scorer.footprint(trained)["weights"][0]
        return step.footprint(full) | {"scorers": (scored, scored)}

    def _state_bytes(self, layout: Layout) -> Array:
        """Bytes that a trainer's device keeps between steps in its first memory."""
        classes = self.trainer_classes(layout)
        return near_bytes({name: classes[name] for name in STATE if name in classes}, layout)

    def footprint(self, layout: Layout) -> Classes:
        """Memory of the device that holds most; of shared devices without a swap, of both parts together.

        Where it is swapped, the larger part lies in the first memory and the trainer's state in the second.
        """
        plan, mine = layout.plan, as_trained(layout)
        engine, trainer = self.rollout_classes(layout), self.trainer_classes(mine)
        larger = jnp.where(_whole(engine) > near_bytes(trainer, mine), 1.0, 0.0)
        both = plan.together() * (1 - plan.swap)
        state = self._state_bytes(mine) * plan.together() * plan.swap
        result = {name: _times(each, at_least(larger, both)) for name, each in engine.items()}
        result |= {name: _times(each, at_least(1 - larger, both)) for name, each in trainer.items()}
        return result | {"swapped": (state, 0.0 * state)}

    def afar_bytes(self, layout: Layout) -> dict[str, Array]:
        """Bytes of offloaded classes of the trainer."""
        step, full = self.fullest(as_trained(layout))
        return step.afar_bytes(full)

    def saved_bytes(self, layout: Layout) -> Array | None:
        """Checkpoint of the trainer."""
        step, trained = self.trainer(as_trained(layout))
        return step.saved_bytes(trained)

    # rules

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Trainer's rules, the engines' under names of their own, and what joins both."""
        plan, mine, theirs = layout.plan, as_trained(layout), as_generated(layout)
        alone = jnp.where(plan.mode == COLOCATED, 1.0, 0.0)
        step, trained = self.trainer(mine)
        rules = step.violations(trained)
        rules |= {ROLLOUT + rule: value for rule, value in self.engine().violations(theirs).items()}
        left = layout.devices - plan.rollout_devices
        return rules | {
            "rollout_share": beyond(plan.ranks(), at_least(left, 0.5)),
            "mode": jnp.abs(alone - plan.together()),
        }

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """Plan in the words of the configuration."""
        plan, mine, theirs = layout.plan, as_trained(layout), as_generated(layout)
        devices, apart = float(layout.devices), float(plan.rollout_devices)
        if rule == "mode":
            name = MODES[int(plan.mode)]
            wanted = "0 rollout devices: all do both" if name == "colocated" else "rollout devices of its own"
            return f"plan.rollout_devices = {apart:g} with plan.mode = {name}, which needs {wanted}"
        if rule == "rollout_share":
            return (
                f"plan.rollout_devices = {apart:g} of {devices:g} devices leaves {max(devices - apart, 0):g} to the"
                f" trainer, whose replica takes {float(plan.ranks()):g}: at most {devices - float(plan.ranks()):g}"
            )
        if rule == "rollout_devices":
            return (
                f"plan.rollout_tp = {float(plan.rollout_tp):g} does not divide the {float(theirs.devices):g} devices of"
                " rollouts (plan.rollout_devices; all devices where it is 0)"
            )
        if rule.startswith(ROLLOUT):
            rule_text = self.engine().broken_rule(rule.removeprefix(ROLLOUT), theirs)
            return rule_text and "rollouts: " + rule_text.replace("plan.micro_batch", "plan.rollout_slots").replace(
                "plan.tp", "plan.rollout_tp"
            ).replace("plan.ep", "plan.rollout_ep")
        if rule == "devices":
            return (
                f"plan: tp {float(plan.tp):g} * cp {float(plan.cp):g} * pp {float(plan.pp):g} does not divide the"
                f" {float(mine.devices):g} devices of the trainer"
            )
        step, trained = self.trainer(mine)
        return step.broken_rule(rule, trained)


def _lowered(trained: tuple[Training, Layout]) -> tuple[Op, ...]:
    """Operations of a step on its layout."""
    step, layout = trained
    return step.lower(layout)


def _with_micro_batch(layout: Layout, each: Array) -> Layout:
    """A layout with so many sequences in a micro-batch."""
    return Layout(dataclasses.replace(layout.plan, micro_batch=each), layout.devices)


def _whole(classes: Classes) -> Array:
    """Bytes of all classes."""
    return sum((nbytes for nbytes, _ in classes.values()), jnp.asarray(0.0))


def _times(nbytes: tuple[Array, Array], factor: Array) -> tuple[Array, Array]:
    return nbytes[0] * factor, nbytes[1] * factor
