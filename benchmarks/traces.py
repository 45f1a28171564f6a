"""CPU seconds of tracing a study and of making the trace flat, the first time in a process and again.

    python benchmarks/traces.py                      three studies
    python benchmarks/traces.py experiment=busy_node one of them, by its overrides

Each study in a process of its own, nothing kept; "again" is another trace of the same scenario, as of a study alike.
"""

import os
import subprocess
import sys
import time

STUDIES = (
    ["experiment=train_gpt3_175b"],
    ["experiment=busy_node"],
    ["workload=goodput", "calibration=h100_sxm_roofline"],
)
ONE = "--one"


def measured(overrides: list[str]) -> None:
    """Print both times of one study, in this process."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    jax.config.update("jax_enable_x64", True)
    from codesign.config import scenario_from_config
    from codesign.model.metrics import evaluate
    from codesign.staging import flatten

    scenario, told = scenario_from_config(*overrides), []
    for when in ("first", "again"):
        start = time.process_time()
        trace = jax.jit(lambda tree: evaluate(tree).flat()).trace(scenario)
        traced = time.process_time()
        program = flatten(trace.jaxpr)
        told.append(f"{when} {traced - start:.2f} s, flat {time.process_time() - traced:.2f} s")
    print(f"{' '.join(overrides)}: {'; '.join(told)}; {len(program.equations):,} equations")


def main() -> None:
    """Measure what is asked for, or all."""
    asked = sys.argv[1:]
    if asked[:1] == [ONE]:
        measured(asked[1:])
        return
    for study in [asked] if asked else STUDIES:
        subprocess.run([sys.executable, __file__, ONE, *study], check=True)


if __name__ == "__main__":
    main()
