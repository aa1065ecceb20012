"""The tree on a latent KV pool: one buffer per layer, one row of 512 + 64 per token, its first part read as values."""

import pytest
import torch
from sglang_ddtree import ops

pytest.importorskip("sglang", reason="sglang is not installed: run the tests in the engine environment")
from sglang.srt.mem_cache.memory_pool import MLATokenToKVPool  # noqa: E402
from sglang_ddtree.attention import verify_attention  # noqa: E402
from sglang_ddtree.worker import kv_buffers  # noqa: E402

LAYERS, HEADS, LATENT, ROPE = 3, 8, 512, 64
SLOTS, BUDGET, BLOCK_SIZE, TOP_K = 200, 15, 8, 4
PREFIXES = torch.tensor([5, 1, 23])


@pytest.fixture
def pool():
    """Rows of random numbers; those that no request owns are NaN."""
    made = MLATokenToKVPool(
        size=SLOTS,
        page_size=1,
        dtype=torch.float32,
        kv_lora_rank=LATENT,
        qk_rope_head_dim=ROPE,
        layer_num=LAYERS,
        device="cpu",
        enable_memory_saver=False,
    )
    for buffer in kv_buffers(made):
        buffer.fill_(torch.nan)
    return made


@pytest.fixture
def tree():
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.randn(len(PREFIXES), BLOCK_SIZE - 1, 40, generator=generator).log_softmax(-1)
    log_probs, ids = log_probs.topk(TOP_K)
    return ops.build_tree(log_probs.contiguous(), ids.contiguous(), torch.zeros(len(PREFIXES)).long(), BUDGET)


def slots_of_requests():
    """Slots of the committed tokens, [b, 24], and of the nodes, [b, W], scattered over the pool."""
    order = torch.randperm(SLOTS, generator=torch.Generator().manual_seed(1))
    rows, nodes = order[:72].view(3, 24), order[72 : 72 + 3 * (BUDGET + 1)].view(3, BUDGET + 1)
    return rows, nodes


def attend(query, buffer, rows, prefix_lens, nodes, ancestors):
    return verify_attention(query, buffer, buffer[..., :LATENT], rows, prefix_lens, nodes, ancestors, True, 0.05)


def test_a_node_sees_the_latents_of_its_root_path_alone(pool, tree):
    generator = torch.Generator().manual_seed(2)
    positions, ancestors = ops.finalize(tree, PREFIXES)
    assert torch.equal(positions, PREFIXES[:, None] + ancestors.sum(-1) - 1)
    rows, nodes = slots_of_requests()
    buffer = kv_buffers(pool)[0]
    for request, prefix in enumerate(PREFIXES.tolist()):
        for owned in (rows[request, :prefix], nodes[request]):
            buffer[owned] = torch.randn(len(owned), 1, LATENT + ROPE, generator=generator)
    query = torch.randn(3, BUDGET + 1, HEADS, LATENT + ROPE, generator=generator)
    found = attend(query, buffer, rows, PREFIXES, nodes, ancestors)
    assert found.shape == (3, BUDGET + 1, HEADS, LATENT) and torch.isfinite(found).all()
    for request, prefix in enumerate(PREFIXES.tolist()):
        for node in range(BUDGET + 1):
            path = ancestors[request, node].nonzero()[:, 0]
            keys = buffer[torch.cat([rows[request, :prefix], nodes[request, path]])][:, 0]
            weights = (query[request, node] @ keys.T * 0.05).softmax(-1)
            torch.testing.assert_close(found[request, node], weights @ keys[:, :LATENT], rtol=1e-4, atol=1e-4)


def test_the_accepted_latents_move_to_the_front_in_every_layer(pool, tree):
    rng = torch.Generator().manual_seed(3)
    buffers = kv_buffers(pool)
    assert len(buffers) == LAYERS
    for buffer in buffers:
        buffer.copy_(torch.randn(buffer.shape, generator=rng))
    before = [buffer.clone() for buffer in buffers]
    _, nodes = slots_of_requests()
    # Deepest path of each tree.
    _, ancestors = ops.finalize(tree, PREFIXES)
    paths = [ancestors[request, ancestors[request].sum(-1).argmax()].nonzero()[:, 0] for request in range(3)]
    assert max(map(len, paths)) > 2 and any(path.tolist() != list(range(len(path))) for path in paths)
    index = torch.full((3, BLOCK_SIZE), -1, dtype=torch.int32)
    for request, path in enumerate(paths):
        index[request, : len(path)] = path.int()
    lens = torch.tensor([len(path) for path in paths], dtype=torch.int32)
    ops.KVMover(buffers)(nodes.contiguous(), index, lens)
    touched = torch.cat([nodes[request, : len(path)] for request, path in enumerate(paths)])
    others = torch.ones(len(buffers[0]), dtype=torch.bool).index_fill(0, touched, False)
    for buffer, known in zip(buffers, before, strict=True):
        for request, path in enumerate(paths):
            assert torch.equal(buffer[nodes[request, : len(path)]], known[nodes[request, path]])
        assert torch.equal(buffer[others], known[others])
