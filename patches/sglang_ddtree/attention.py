"""Target verification on the torch_native attention backend: plain SDPA that honours the tree's mask."""

import torch
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from torch.nn.functional import scaled_dot_product_attention


def block_mask(width: int, prefix_len: int, ancestors: torch.Tensor | None, causal: bool) -> torch.Tensor | None:
    """Which of the prefix and the block each node of one request sees.

    Args:
        width: nodes in the block.
        prefix_len: committed tokens before it, seen by every node.
        ancestors: bool [width, width] for a tree, None for a chain or a drafter's block.
        causal: without `ancestors`, whether a node sees only earlier nodes.

    Returns:
        bool [width, prefix_len + width], or None where every node sees everything.
    """
    if ancestors is None:
        if not causal:
            return None
        ancestors = torch.ones(width, width, dtype=torch.bool).tril()
    return torch.cat([torch.ones(width, prefix_len, dtype=torch.bool), ancestors.bool()], dim=1)


def verify_attention(q, k_cache, v_cache, rows, prefix_lens, block_slots, ancestors, causal, scaling):
    """Attention of one block of nodes per request over its prefix and itself.

    Args:
        q: [b, width, query heads, head dim].
        k_cache, v_cache: [slots, KV heads, head dim], the block's rows already written.
        rows: int [b, >= max prefix], slots of each request by position.
        prefix_lens: int [b].
        block_slots: int64 [b, width], slots of the block's nodes.
        ancestors: bool [b, width, width] or None.
        causal: see `block_mask`.
        scaling: softmax scale.

    Returns:
        [b, width, query heads, value dim]
    """
    out = []
    for i, prefix_len in enumerate(prefix_lens.tolist()):
        slots = torch.cat([rows[i, :prefix_len].long(), block_slots[i]])
        keys, values = k_cache[slots].to(q.dtype), v_cache[slots].to(q.dtype)
        mask = block_mask(q.shape[1], prefix_len, None if ancestors is None else ancestors[i], causal)
        out.append(
            scaled_dot_product_attention(
                q[i].transpose(0, 1),
                keys.transpose(0, 1),
                values.transpose(0, 1),
                attn_mask=mask,
                scale=scaling,
                enable_gqa=q.shape[2] != keys.shape[1],
            ).transpose(0, 1)
        )
    return torch.stack(out)


def forward_extend(original, backend, q, k, v, layer, forward_batch, save_kv_cache=True):
    """AROUND hook of `TorchNativeAttnBackend.forward_extend`, which knows no TARGET_VERIFY."""
    if not forward_batch.forward_mode.is_target_verify():
        return original(backend, q, k, v, layer, forward_batch, save_kv_cache)
    if layer.sliding_window_size is not None and layer.sliding_window_size > -1:
        raise RuntimeError("torch_native verifies no layer with a sliding window: use a drafter with full attention")
    if save_kv_cache and k is not None:
        locations = KVWriteLoc(forward_batch.out_cache_loc, backend.swa_out_cache_loc)
        backend.token_to_kv_pool.set_kv_buffer(layer, locations, k, v)
    requests = forward_batch.batch_size
    width = q.shape[0] // requests
    result = verify_attention(
        q.view(requests, width, layer.tp_q_head_num, layer.qk_head_dim),
        backend.token_to_kv_pool.get_key_buffer(layer.layer_id),
        backend.token_to_kv_pool.get_value_buffer(layer.layer_id),
        backend.req_to_token_pool.req_to_token[forward_batch.req_pool_indices],
        forward_batch.seq_lens,
        forward_batch.out_cache_loc.view(requests, width),
        getattr(forward_batch.spec_info, "ancestors", None),
        layer.attn_type != AttentionType.ENCODER_ONLY,
        layer.scaling,
    )
    return result.reshape(q.shape[0], -1)
