"""Size of the KV pools: what one token costs in the target's pool and in the drafter's together."""

from sglang_ddtree import compat


def cell_size_with_drafter(original, *, draft_cell_size_per_token=None, **sizes) -> int:
    """AROUND hook of `scale_kv_cell_size_per_token_for_dflash`: bytes per token of both pools.

    Without the drafter's own figure SGLang takes its layers for as large as the target's. A drafter with keys and
    values per head under a target with MLA costs several times as much, and the pools would not fit.
    """
    if draft_cell_size_per_token is None:
        draft_cell_size_per_token = compat.drafter_cell_size(sizes["draft_num_layers"])
    return original(draft_cell_size_per_token=draft_cell_size_per_token, **sizes)


def kv_bytes_per_token(kv_heads: int, key_dim: int, value_dim: int, layers: int, element_size: int) -> int:
    """Bytes of keys and values of one token on one GPU; `kv_heads` are those of the GPU."""
    return kv_heads * (key_dim + value_dim) * layers * element_size
