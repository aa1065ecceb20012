"""The workload of the engine matrix that looks into every tensor-parallel rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.gpu.engine_pair import TOKENS
from tests.probe_plugin.rank_trees import RankTrees

if TYPE_CHECKING:
    from tests.gpu.engine_workloads import Run


def same_trees(run: Run) -> dict:
    """All ranks built the same trees and committed the same choices, drawn ones too.

    The probe gives each rank random numbers of its own, so that only rank 0's choices, sent to all, keep them together.
    """
    numbers = list(range(len(run.prompts)))
    drawn = {"sampling_params": {"temperature": 1.0, "max_new_tokens": TOKENS, "ignore_eos": True}}
    replies = run.ask_all(numbers, [TOKENS] * len(numbers), 4, **drawn)
    if any(len(reply["output_ids"]) != TOKENS for reply in replies):
        run.faults.append("a sampled answer is short")
    trees = RankTrees.read(run.server.engine.folder)
    if len(trees.ranks) != run.case.tp or not trees.steps:
        run.faults.append(f"{len(trees.ranks)} ranks wrote {trees.steps} steps, {run.case.tp} ranks must")
    elif trees.first_difference is not None:
        run.faults.append(f"the ranks part at step {trees.first_difference} of {trees.steps}")
    return {"ranks": len(trees.ranks), "compared_steps": trees.steps, "dumps": str(run.server.engine.folder)}
