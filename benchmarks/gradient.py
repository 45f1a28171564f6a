"""The first gradient of a study: `objective_fn` beside the whole model, compiled by JAX as it stands.

    python benchmarks/gradient.py [experiment ...]

Each experiment in a process of its own, with an empty cache: CPU seconds from its start to the first value and slope;
of its own `value_and_grad` the first call and the next ones, by NumPy, the call that compiles it and those after it;
equations of one trace; seconds to compile `jax.value_and_grad` and `jax.jacfwd` of it; then the same of the whole
model, and the least time of eight traces of it.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time

EXPERIMENTS = ("codesign_175b", "train_dlrm", "serve_llama31_405b")


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def equations(jaxpr) -> tuple[int, int]:
    """Equations where a call or a loop is one, and with those of their bodies, each body once a call."""
    inner = sum(equations(body)[1] for body in subjaxprs(jaxpr))
    return len(jaxpr.eqns), len(jaxpr.eqns) + inner


def subjaxprs(jaxpr):
    """Bodies of the calls and loops of a jaxpr."""
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            for one in value if isinstance(value, tuple | list) else (value,):
                if hasattr(one, "eqns"):
                    yield one
                elif hasattr(getattr(one, "jaxpr", None), "eqns"):
                    yield one.jaxpr


def measured(name: str) -> dict[str, float]:
    """Figures of one study, in this process."""
    import jax
    import jax.numpy as jnp

    from codesign import evaluate, objective_fn, prepare_jax, study_from_config
    from codesign.jaxprs.evaluator import PATIENCE

    prepare_jax()
    study = study_from_config(f"experiment={name}")
    problem, plans = study.problem, study.space.plans(study.scenario)
    plan = {field: float(values[len(values) // 2]) for field, values in plans.items()}
    objective = objective_fn(study, plan)
    u = jnp.full(len(objective.names), 0.4)

    def first(function) -> float:
        began = cpu_s()
        jax.block_until_ready(function(u))
        return cpu_s() - began

    def call_ms(function, calls: int) -> float:
        began = time.perf_counter()
        for _ in range(calls):
            jax.block_until_ready(function(u))
        return 1e3 / calls * (time.perf_counter() - began)

    def whole(u):
        values = problem.space.values({one: u[index] for index, one in enumerate(objective.names)})
        return problem.objective.loss(evaluate(problem.space.place(problem.scenario, plan | values)), objective.penalty)

    own = objective.value_and_grad
    result = {"variables": float(len(u)), "first_s": first(own), "to_first_gradient_s": cpu_s()}
    result["again_ms"] = call_ms(own, PATIENCE - 1)
    result |= {"compile_s": first(own), "call_ms": call_ms(own, 200)}
    result["equations"], result["with_bodies"] = map(float, equations(jax.make_jaxpr(objective.rows)(u).jaxpr))
    result["jit_s"] = first(jax.jit(jax.value_and_grad(objective)))
    leaves, tree = jax.tree.flatten(problem.scenario)

    def traced() -> tuple[float, float]:
        began = cpu_s()
        program = jax.make_jaxpr(lambda *leaves: evaluate(jax.tree.unflatten(tree, leaves)))(*leaves)
        return cpu_s() - began, float(len(program.jaxpr.eqns))

    result["trace_s"], result["model_equations"] = min(traced() for _ in range(8))  # the first traces parts of JAX, too
    plain = jax.jit(jax.value_and_grad(whole))
    result |= {"plain_compile_s": first(plain), "plain_call_ms": call_ms(plain, 200)}
    return result | {"forward_compile_s": first(jax.jit(jax.jacfwd(whole)))}


def main(names: list[str]) -> None:
    """One line an experiment."""
    for name in names or EXPERIMENTS:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--one", name]
            environment = os.environ | {"XDG_CACHE_HOME": folder}
            told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        one = json.loads(told.splitlines()[-1])
        print(
            f"{name}: {one['variables']:.0f} variables, {one['equations']:.0f} equations"
            f" ({one['with_bodies']:.0f} with the bodies of calls and loops); first gradient after"
            f" {one['to_first_gradient_s']:.1f} CPU s, of which the call itself {one['first_s']:.1f}; the next ones"
            f" {one['again_ms']:.1f} ms each; compiled then in {one['compile_s']:.1f}, {one['call_ms']:.3f} ms a call;"
            f" `jax.jit(jax.value_and_grad)` of it in {one['jit_s']:.1f}"
            f" ({one['plain_compile_s'] / one['jit_s']:.1f} x less than the whole model);"
            f" the whole model has {one['model_equations']:.0f} (a call is one), is traced in {one['trace_s']:.2f},"
            f" compiles in {one['plain_compile_s']:.1f}, by `jax.jacfwd` in {one['forward_compile_s']:.1f},"
            f" {one['plain_call_ms']:.3f} ms a call",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measured(sys.argv[2])))
    else:
        main(sys.argv[1:])
