"""The target's pass of one step: over all nodes of a tree or a chain, or over one token as without speculation."""

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode

from sglang_ddtree import compat
from sglang_ddtree.verify_input import DDTreeVerifyInput


def host_bound(batch, width: int) -> torch.Tensor:
    """Upper bound of each request's length after `width` more tokens, on the host, without a copy."""
    if batch.seq_lens_cpu is not None:
        return batch.seq_lens_cpu + width
    return compat.get_reserved(batch.spec_info)[0]


def verify(worker, tier, batch, tree, positions, ancestors, node_slots, plan):
    """Run the target over all nodes; logits [b * W, V] and hidden states [b * W, ...] in its output.

    Args:
        positions: int64 [b, W].
        ancestors: bool [b, W, W], None for a chain, which is causal as it is.
        node_slots: int64 [b, W].
    """
    width = tier.shape.width
    verify_input = DDTreeVerifyInput(
        draft_token=tree.token.flatten(),
        positions=positions.flatten(),
        draft_token_num=width,
        capture_hidden_mode=CaptureHiddenMode.FULL,
        ancestors=ancestors,
        **plan.verify_fields(node_slots),
    )
    batch.out_cache_loc = node_slots.flatten()
    committed = batch.seq_lens_cpu, batch.seq_lens_sum
    batch.seq_lens_cpu = host_bound(batch, width)
    batch.seq_lens_sum = int(batch.seq_lens_cpu.sum())
    forward_batch = verify_input.prepare_for_verify(batch, worker.target_worker)
    batch.seq_lens_cpu, batch.seq_lens_sum = committed
    return worker.target_worker.forward_batch_generation(
        batch=None, forward_batch=forward_batch, is_verify=True, skip_attn_backend_init=True
    )


def decode(worker, batch, roots, slots):
    """Run the target over one token per request, with the kernels of a server without speculation.

    Args:
        roots: int64 [b].
        slots: int64 [b].

    Returns:
        Its output: logits [b, V] and hidden states [b, ...].
    """
    bound = host_bound(batch, 1)
    kept = {name: getattr(batch, name) for name in ("seq_lens", "seq_lens_cpu", "seq_lens_sum", "spec_info")}
    batch.input_ids, batch.out_cache_loc, batch.spec_info = roots, slots, None
    # The length of a plain step counts the token that it runs over.
    batch.seq_lens, batch.seq_lens_cpu, batch.seq_lens_sum = batch.seq_lens + 1, bound, int(bound.sum())
    batch.forward_mode = ForwardMode.DECODE
    forward_batch = ForwardBatch.init_new(
        batch,
        worker.model_runner,
        capture_hidden_mode=CaptureHiddenMode.FULL,
        return_hidden_states_before_norm=False,
    )
    for name, value in kept.items():
        setattr(batch, name, value)
    return worker.target_worker.forward_batch_generation(batch=None, forward_batch=forward_batch, is_verify=True)
