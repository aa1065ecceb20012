"""Write the accept lengths and answers that the engine matrix must find: `python -m tests.gpu.engine_simulate`.

Runs on the CPU, one thread, some minutes. Nothing of SGLang or of the plugin is used.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from tests.gpu.engine_cases import CHAIN, simulated_shapes
from tests.gpu.engine_pair import TOKENS, drafter_of_block_size, prompts
from tests.simulation import Answer, Pair, greedy_answer, load_pair, pooled_accept_length, walk
from tests.simulation.defaults import pair_dir

OUTPUT = Path(__file__).with_name("simulated-accept.json")


def accept_length(pair: Pair, answers: list[Answer], budget: int, top_k: int, block_size: int) -> float:
    """Completion tokens per verify step over all answers; a tree of one candidate per depth is the chain."""
    if (budget, top_k, block_size) == CHAIN:
        return pooled_accept_length(walk(pair, answer, "chain") for answer in answers)
    return pooled_accept_length(walk(pair, answer, "tree", budget, top_k, block_size) for answer in answers)


def simulate(target: Path, drafter: Path) -> dict:
    """Greedy answers to the matrix's prompts, and the pooled accept length of each of its shapes."""
    lengths, answers = {}, []
    for block_size in sorted({shape[2] for shape in simulated_shapes()}):
        with tempfile.TemporaryDirectory() as folder:
            pair = load_pair(target, drafter_of_block_size(drafter, block_size, Path(folder)))
        answers = [greedy_answer(pair, ids, TOKENS, ignore_eos=True) for ids in prompts(target)]
        for shape in (shape for shape in simulated_shapes() if shape[2] == block_size):
            lengths["/".join(map(str, shape))] = round(accept_length(pair, answers, *shape), 5)
    return {
        "tokens": TOKENS,
        "key": "budget/top-k/block size",
        "accept_length": lengths,
        "answers": [list(answer.tokens[:TOKENS]) for answer in answers],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.engine_simulate", description=__doc__)
    parser.add_argument("--pair-dir", type=Path, default=pair_dir(), help="folder of target/ and drafter/")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    args = parser.parse_args()
    result = simulate(args.pair_dir / "target", args.pair_dir / "drafter")
    args.output.write_text(json.dumps(result).replace("], [", "],\n  [") + "\n")
    for shape, length in result["accept_length"].items():
        print(f"{shape:>10} {length:.3f}")


if __name__ == "__main__":
    main()
