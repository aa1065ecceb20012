"""Compiles what the tiers launch outside their graphs, before the first request comes.

A server warms up with one request, which runs one tier. The kernels of the others would be compiled in the middle of
the step that is the first of its tier, and every request in the batch would wait for that.
"""

import torch

from sglang_ddtree import ops
from sglang_ddtree.proposals import path


def warm_up(worker) -> None:
    """Run every tier's operations once for one request, in the slot that is kept for padding (0)."""
    for engine in worker.tiers.by_name.values():
        _run(worker, engine)


def _run(worker, engine) -> None:
    tier, device = engine.tier, worker.device
    width, block = tier.shape.width, tier.shape.block_size
    # A tree that is a path of token 0, all of which is accepted: no row of KV has to move.
    tree = path(1, width, device)
    tree.token.zero_()
    lens = torch.ones(1, dtype=torch.int64, device=device)
    slots = torch.zeros(1, width, dtype=torch.int64, device=device)
    if tier.is_tree:
        _, ancestors = ops.finalize(tree, lens)
        mask = torch.empty(width * (width + 1), dtype=torch.uint8, device=device)
        fill_prefix = bool(getattr(engine.backend, "enable_deterministic", False))
        ops.write_mask_tails(mask, torch.zeros_like(slots[0, :2]), lens, ancestors, fill_prefix)
    accepted = ops.accept(tree, torch.zeros_like(slots), lens, block)
    if tier.is_tree:
        worker.kv_mover(slots, accepted.index, accepted.commit_lens)
    _append(worker, block, lens if tier.drafts else None)


def _append(worker, tokens: int, commit_lens: torch.Tensor | None) -> None:
    """Write the drafter's KV of `tokens` tokens, dense with `commit_lens` or one by one."""
    projection, dtype = worker.draft_model.fc, worker.model_runner.dtype
    # A torch layer, or in 0.5.23 perhaps one of SGLang's.
    features = projection.in_features if hasattr(projection, "in_features") else projection.input_size
    slots = torch.zeros(1, tokens, dtype=torch.int64, device=worker.device)
    dense = {} if commit_lens is None else {"cache_loc_2d": slots, "commit_lens": commit_lens.int()}
    worker._append_target_hidden_to_draft_kv_by_loc(
        target_hidden=torch.zeros(tokens, features, dtype=dtype, device=worker.device),
        cache_loc=slots.flatten(),
        positions=torch.arange(tokens, device=worker.device),
        **dense,
    )
