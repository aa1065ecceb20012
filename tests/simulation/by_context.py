"""Accept lengths behind long prompts, without SGLang, to hold against those that a matrix served.

    python -m tests.simulation.by_context --contexts 60,1024 --output bench/results/NAME.json

The prompts are those of `bench.matrix` with the same seed; answers have as many tokens.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path

from bench.contexts import Prompts
from tests.simulation import greedy_answer, load_pair, pooled_accept_length, walk
from tests.simulation.defaults import pair_dir

ARMS = {"chain": ("chain",), **{f"tree:{b}:{k}": ("tree", b, k) for b, k in ((4, 4), (8, 4), (16, 4), (32, 8))}}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.by_context", description=__doc__)
    parser.add_argument("--pair-dir", type=Path, default=pair_dir(), help="folder of target/ and drafter/")
    parser.add_argument("--contexts", default="60", help="prompt tokens, as in 60,1024")
    parser.add_argument("--questions", type=int, default=4)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    pair = load_pair(args.pair_dir / "target", args.pair_dir / "drafter")
    prompts, found = Prompts.load(str(args.pair_dir / "target"), seed=0), {}
    for context in map(int, args.contexts.split(",")):
        asked = prompts.of(context, args.questions)
        answers = [greedy_answer(pair, ids, args.max_new_tokens, ignore_eos=True) for ids in asked]
        lengths = {name: pooled_accept_length(walk(pair, a, *arm) for a in answers) for name, arm in ARMS.items()}
        found[context] = {name: round(value, 4) for name, value in lengths.items()}
        print(context, found[context], flush=True)
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    command = " ".join(["python -m tests.simulation.by_context", *sys.argv[1:]])
    document = {"what": "simulated accept length by context, float32", "date": date, "command": command}
    args.output.write_text(json.dumps(document | {"contexts": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
