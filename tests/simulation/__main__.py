"""Print the accept length of chain and tree over ordinary questions: `python -m tests.simulation`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.simulation import Answer, Pair, greedy_answer, load_pair, pooled_accept_length, walk
from tests.simulation.defaults import QUESTIONS, pair_dir

BUDGETS = (3, 7, 8, 15, 16, 31)
TOP_KS = (4, 8)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--pair-dir", type=Path, default=pair_dir(), help="folder of target/ and drafter/")
    parser.add_argument("--max-new-tokens", type=int, default=100)
    parser.add_argument("--ignore-eos", action="store_true")
    return parser.parse_args()


def print_answers(pair: Pair, answers: list[Answer]) -> None:
    print(f"{'chain':>6} {'tree 16':>8} {'tokens':>7}  question")
    for question, answer in zip(QUESTIONS, answers, strict=True):
        lengths = (walk(pair, answer, "chain"), walk(pair, answer, "tree", budget=16, top_k=8))
        chain, tree = (w.accept_length or float("nan") for w in lengths)
        print(f"{chain:6.3f} {tree:8.3f} {answer.length:7d}  {question}")


def print_table(pair: Pair, answers: list[Answer]) -> None:
    print("\ncompletion tokens per verify step, all questions together")
    print(f"{'':10}" + "".join(f"{f'top-k {k}':>12}" for k in TOP_KS))
    chain = pooled_accept_length(walk(pair, answer, "chain") for answer in answers)
    print(f"{'chain':10}" + f"{chain:12.3f}" * len(TOP_KS))
    for budget in BUDGETS:
        row = (
            pooled_accept_length(walk(pair, answer, "tree", budget, top_k) for answer in answers) for top_k in TOP_KS
        )
        print(f"{f'tree {budget}':10}" + "".join(f"{value:12.3f}" for value in row))


def main() -> None:
    args = parse_args()
    pair = load_pair(args.pair_dir / "target", args.pair_dir / "drafter")
    answers = [
        greedy_answer(pair, pair.chat.prompt_ids(question), args.max_new_tokens, args.ignore_eos)
        for question in QUESTIONS
    ]
    print_answers(pair, answers)
    print_table(pair, answers)


if __name__ == "__main__":
    main()
