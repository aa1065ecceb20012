"""The KV pools are sized by what a token really takes in them, also where target and drafter differ in attention."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("sglang", reason="sglang is not installed: run the tests in the engine environment")
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool  # noqa: E402
from sglang.srt.speculative.dflash_utils import scale_kv_cell_size_per_token_for_dflash  # noqa: E402
from sglang_ddtree import compat, hooks, pool_size  # noqa: E402
from sglang_ddtree.worker import kv_buffers  # noqa: E402

SLOTS, LAYERS, LATENT, ROPE = 64, 3, 512, 64
# Key-value heads, dimension and layers of a drafter.
HEADS, DIM, DRAFT_LAYERS = 8, 128, 6


def bytes_per_slot(pool) -> int:
    return sum(buffer[0].numel() * buffer.element_size() for buffer in kv_buffers(pool))


def mla_pool():
    return MLATokenToKVPool(
        size=SLOTS,
        page_size=1,
        dtype=torch.bfloat16,
        kv_lora_rank=LATENT,
        qk_rope_head_dim=ROPE,
        layer_num=LAYERS,
        device="cpu",
        enable_memory_saver=False,
    )


def drafter_pool():
    return MHATokenToKVPool(
        size=SLOTS,
        page_size=1,
        dtype=torch.bfloat16,
        head_num=HEADS,
        head_dim=DIM,
        layer_num=DRAFT_LAYERS,
        device="cpu",
        enable_memory_saver=False,
    )


def test_a_drafters_bytes_per_token_are_those_of_its_pool():
    assert pool_size.kv_bytes_per_token(HEADS, DIM, DIM, DRAFT_LAYERS, 2) == bytes_per_slot(drafter_pool())


def test_the_latent_counts_once_whatever_the_heads():
    assert bytes_per_slot(mla_pool()) == (LATENT + ROPE) * LAYERS * 2


@pytest.mark.skipif(compat.V23, reason="0.5.23 sizes the drafter's pool by its own config")
def test_both_pools_together_are_what_a_token_is_taken_for(monkeypatch):
    target, drafter = bytes_per_slot(mla_pool()), bytes_per_slot(drafter_pool())
    sizes = {"target_cell_size_per_token": target, "target_num_layers": LAYERS, "draft_num_layers": DRAFT_LAYERS}
    monkeypatch.setattr(compat, "drafter_cell_size", lambda layers: drafter if layers == DRAFT_LAYERS else 0)
    found = pool_size.cell_size_with_drafter(scale_kv_cell_size_per_token_for_dflash, **sizes)
    assert found == target + drafter
    # By layers alone, the drafter would have been taken for a third of what it is.
    assert scale_kv_cell_size_per_token_for_dflash(**sizes) < found / 2


@pytest.mark.skipif(compat.V23, reason="0.5.23 sizes the drafter's pool by its own config")
def test_the_drafters_geometry_is_read_from_its_own_config(monkeypatch):
    from sglang.srt import runtime_context
    from sglang.srt.configs import model_config

    args = SimpleNamespace(
        speculative_draft_model_path="drafter",
        speculative_draft_model_revision=None,
        kv_cache_dtype="auto",
        speculative_draft_attention_backend="triton",
    )
    config = SimpleNamespace(
        dtype=torch.bfloat16, head_dim=DIM, v_head_dim=DIM, get_num_kv_heads=lambda ranks: max(1, HEADS // ranks)
    )
    monkeypatch.setattr(runtime_context, "get_server_args", lambda: args)
    monkeypatch.setattr(runtime_context, "get_parallel", lambda: SimpleNamespace(attn_tp_size=2))
    monkeypatch.setattr(model_config.ModelConfig, "from_server_args", lambda *_, **__: config)
    assert compat.drafter_cell_size(DRAFT_LAYERS) == bytes_per_slot(drafter_pool()) // 2


def test_the_hook_is_one_of_the_hooks_that_a_start_checks():
    name = "sglang.srt.speculative.dflash_utils.scale_kv_cell_size_per_token_for_dflash"
    assert (name in hooks.targets("cuda")) is (not compat.V23)
