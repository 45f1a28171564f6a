"""Long trials of hostile input.

    python tests/fuzz tables --cases 20000 --seed 7       one kind
    python tests/fuzz --cases 20000                        every kind

Prints how cases ended and the first findings; exits with 1 where there is one.
"""

import argparse
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)

from fuzz.asked_kinds import ASKED  # noqa: E402
from fuzz.harness import trial  # noqa: E402
from fuzz.kinds import KINDS as READ  # noqa: E402

SHOWN = 10
KINDS = READ | ASKED


def main() -> int:
    """Try, and tell."""
    parser = argparse.ArgumentParser(prog="python tests/fuzz")
    parser.add_argument("kinds", nargs="*", default=list(KINDS), help=", ".join(KINDS))
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    bad = 0
    for kind in asked.kinds:
        ends, findings, slowest = trial(kind, KINDS[kind], asked.cases, asked.seed)
        told = ", ".join(f"{count:,} {end}" for end, count in ends.most_common())
        print(f"{kind}: {told}; slowest {slowest:.2f} CPU s", flush=True)
        for finding in findings[:SHOWN]:
            print(f"  case {finding.number}: {finding.what}\n    {finding.told}")
        bad += len(findings)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
