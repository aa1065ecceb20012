#!/usr/bin/env python3
"""The engine matrix on a tiny target with MLA and routed experts, as large models of the DeepseekV3 family have them.

Target and drafter are random, and the proposals hold the target's own next token at a random rank of each depth (see
`tests/probe_plugin/ddtree_oracle.py`), so accepted paths are deep and scattered. Needs a GPU and an installed (patched)
SGLang with the plugin; the models are written to a temporary folder. Exits with 1 on any fault.

    python tests/gpu/engine_mla.py --sglang-python python3 --output bench/results/NAME.json
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.engine.tiny import VOCAB
from tests.engine.tiny_mla import greedy_answers, write_mla_pair
from tests.gpu.engine_cases import Case, reference
from tests.gpu.engine_matrix import Matrix, run_all
from tests.gpu.engine_pair import drafter_of_block_size
from tests.gpu.engine_server import MatrixEngine, Setup
from tests.gpu.engine_workloads import REFERENCE_TOKENS
from tests.probe_plugin.ddtree_oracle import TOP_K, Known, save
from tests.probe_plugin.probed_engine import with_probe

GROUP = "mla"
SERVED = ("batches", "churn", "repeat")
#: Tiles of the extend kernel hold 16 or 32 query rows: widths below, at and above both.
BUDGETS = (5, 15, 31, 63)


def cases(oracle: Path) -> list[Case]:
    """The servers with speculation; `oracle` is the file of proposals."""
    shared = {"block_size": 16, "top_k": TOP_K, "probe": f"oracle:{oracle}", "workloads": SERVED}
    exact = [Case(f"mla-B{budget}", budget, **shared) for budget in BUDGETS]
    eager = Case("mla-eager-B31", 31, graphs=False, **shared)
    pages = Case("mla-page-64", 31, flags=("--page-size", "64"), **shared)
    chunked = Case("mla-chunked-prefill", 31, flags=("--chunked-prefill-size", "32"), **shared)
    half = Case("mla-bf16-B31", 31, dtype="bfloat16", **{**shared, "workloads": ("batches",)})
    return [*exact, eager, pages, chunked, half]


class MlaEngine(MatrixEngine):
    """On a CPU the target prefills as it decodes, which torch_native can do."""

    def environment(self) -> dict[str, str]:
        environment = super().environment()
        if environment.get("DDTREE_NATIVE_OPS"):
            environment["DDTREE_NATIVE_OPS"] = "experts"
        if self.setup.device == "cpu":
            environment = with_probe(environment, self.case.probe, latent=True)
        return environment


class MlaMatrix(Matrix):
    """Prompts are token ids, and no simulation of the drafter is known."""

    def __init__(self, setup: Setup, prompts: list[list[int]]):
        self.setup, self.prompts = setup, prompts
        self.simulated, self.references = None, {}

    def engine(self, case: Case) -> MlaEngine:
        return MlaEngine(self.setup, case)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="results file; the group mla in it is replaced")
    parser.add_argument("--sglang-python", default=sys.executable, help="interpreter that runs the servers")
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument("--prompts", type=int, default=20, help="fewer, to try the script")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries the script itself")
    parser.add_argument("--parallel", type=int, default=10, help="servers that run at once")
    return parser.parse_args()


def write_models(folder: Path, count: int) -> tuple[Setup, list[list[int]], Path]:
    """Models, prompts of 3 to 150 tokens, and the oracle's file."""
    target, drafter = write_mla_pair(folder, seed=2)
    drafters = {size: drafter_of_block_size(drafter, size, folder / f"drafter-{size}") for size in (8, 16)}
    rng = random.Random(0)
    prompts = [rng.choices(range(1, VOCAB - 1), k=3 + 7 * (number % 22)) for number in range(count)]
    answers = greedy_answers(target, prompts, REFERENCE_TOKENS + 32)
    known = [Known(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
    save(folder / "oracle.json", known, VOCAB, seed=3)
    return Setup("", "", target, drafters), prompts, folder / "oracle.json"


def main() -> int:
    args = parse_args()
    with tempfile.TemporaryDirectory(prefix="mla-") as name:
        models, prompts, oracle = write_models(Path(name), args.prompts)
        setup = replace(models, python=args.sglang_python, device=args.device)
        chosen = [case for case in cases(oracle) if args.case in case.name]
        if args.device == "cpu":
            chosen = [replace(case, graphs=False) for case in chosen]
        known = [reference(dtype) for dtype in dict.fromkeys(case.dtype for case in chosen)]
        words = ["python", "tests/gpu/engine_mla.py", "--output", args.output.name, "--case", args.case]
        args.command = shlex.join([*words, "--prompts", str(args.prompts), "--device", args.device])
        return run_all(args, MlaMatrix(setup, prompts), [(case, [GROUP]) for case in [*known, *chosen]])


if __name__ == "__main__":
    sys.exit(main())
