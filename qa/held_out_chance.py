"""Chance of designs of `--confidence 0.9`: the share of draws that their search did not see in which limits are kept.

python qa/held_out_chance.py      ten questions, about two minutes each
"""

import argparse
import re
import subprocess
import sys

QUESTIONS = (
    "llama31_8b --on h200 --rate 30/s --ttft-p99 2s --tpot-p99 50ms",
    "llama31_8b --on l40s --rate 10/s --ttft-p99 3s --tpot-p99 80ms --input 1000 --output 200",
    "llama31_70b --on h200 --rate 5/s --ttft-p99 3s --tpot-p99 60ms",
    "llama31_70b --on b200 --rate 10/s --ttft 1s --tpot 40ms",
    "qwen3_32b --on h100_sxm --rate 8/s --ttft-p90 2s --tpot-p90 50ms --input 4k --output 500",
    "gpt_oss_120b --on h100_sxm --rate 10/s --ttft-p99 2s --tpot-p99 40ms",
    "qwen3_30b_a3b --on h200 --rate 20/s --tpot-p99 30ms",
    "mixtral_8x7b --on h200 --rate 20/s --ttft 500ms --tpot 40ms",
    "llama31_8b --on h200 --clients 64 --tpot 20ms",
    "qwen3_32b --on b200 --clients 32 --ttft 500ms --tpot 25ms",
)


def main() -> int:
    """Ask each question and read the shares that the answer prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=len(QUESTIONS), help="questions, from the first (all)")
    kept = []
    for question in QUESTIONS[: parser.parse_args().count]:
        command = [sys.executable, "-m", "codesign", "serve", *question.split(), "--confidence", "0.9"]
        done = subprocess.run(command, capture_output=True, text=True)
        result = re.search(r"in (\d+)% of the draws.*?and in (\d+)% of", " ".join(done.stdout.split()))
        if result is None:
            print(f"none   {question}: {(done.stderr or done.stdout).strip().splitlines()[-1]}", flush=True)
            continue
        seen, others = map(int, result.groups())
        kept.append(others)
        print(f"{seen} %, held out {others} %   {question}", flush=True)
    good = sum(share >= 85 for share in kept)
    print(f"{good} of {len(kept)} designs keep their limits in at least 85 % of draws that their search did not see")
    return 0 if kept and good == len(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
