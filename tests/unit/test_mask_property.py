"""Every node sees what its root path would see as a chain, and nothing else.

A small transformer runs over a paged KV pool: once over a whole tree with the ancestor mask, once over each
node's root path as an ordinary causal sequence. Slots that no node may read hold NaN, so a single wrong mask
entry, position or slot spoils the result.
"""

import pytest
import torch
from sglang_ddtree import ops

pytest.importorskip("sglang", reason="sglang is not installed: run the tests in the engine environment")
from sglang_ddtree.attention import verify_attention  # noqa: E402

LAYERS, HEADS, KV_HEADS, DIM, VOCAB = 2, 6, 2, 16, 50


class TinyTarget:
    """Two attention layers with positions added to the embedding; enough to tell contexts apart."""

    def __init__(self, generator):
        def weight(*shape):
            return torch.randn(*shape, generator=generator) / shape[0] ** 0.5

        hidden = HEADS * DIM
        self.embed, self.place = weight(VOCAB, hidden) * 7, weight(512, hidden) * 7
        self.qkv = [weight(hidden, (HEADS + 2 * KV_HEADS) * DIM) for _ in range(LAYERS)]
        self.out = [weight(hidden, hidden) for _ in range(LAYERS)]
        self.head = weight(hidden, VOCAB)

    def run(self, tokens, positions, pools, rows, prefix_lens, slots, ancestors, causal=True):
        """Logits [b, width, V]; writes the block's keys and values into `pools`."""
        x = self.embed[tokens] + self.place[positions]
        for layer, (keys, values) in enumerate(pools):
            split = [HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM]
            q, k, v = (x @ self.qkv[layer]).split(split, dim=-1)
            keys[slots] = k.unflatten(-1, (KV_HEADS, DIM))
            values[slots] = v.unflatten(-1, (KV_HEADS, DIM))
            heads = q.unflatten(-1, (HEADS, DIM))
            seen = verify_attention(heads, keys, values, rows, prefix_lens, slots, ancestors, causal, DIM**-0.5)
            x = x + seen.flatten(2) @ self.out[layer]
        return x @ self.head


def new_pools(slots):
    return [tuple(torch.full((slots, KV_HEADS, DIM), torch.nan) for _ in range(2)) for _ in range(LAYERS)]


@pytest.mark.parametrize(("budget", "block_size", "top_k"), [(3, 8, 4), (7, 8, 2), (15, 4, 3), (31, 8, 8), (5, 16, 1)])
def test_a_nodes_logits_are_those_of_its_root_path(budget, block_size, top_k):
    generator = torch.Generator().manual_seed(budget)
    target = TinyTarget(generator)
    prefix_lens = torch.tensor([5, 1, 23])
    requests, width = len(prefix_lens), budget + 1
    prompt = torch.randint(VOCAB, (requests, 64), generator=generator)
    log_probs = torch.randn(requests, block_size - 1, VOCAB, generator=generator).log_softmax(-1)
    log_probs, ids = log_probs.topk(top_k)
    roots = prompt.gather(1, prefix_lens[:, None])[:, 0]
    tree = ops.build_tree(log_probs.contiguous(), ids.contiguous(), roots, budget)
    positions, ancestors = ops.finalize(tree, prefix_lens)

    order = torch.randperm(400, generator=generator)
    rows = order[: requests * 64].view(requests, 64)
    slots = order[requests * 64 : requests * 64 + requests * width].view(requests, width)
    pools = new_pools(400)
    fill_prefix(target, prompt, prefix_lens, pools, rows)
    logits = target.run(tree.token, positions, pools, rows, prefix_lens, slots, ancestors)
    assert torch.isfinite(logits).all(), "a node read a slot that holds no committed or ancestor token"

    for request in range(requests):
        for node in range(width):
            path = ancestors[request, node].nonzero()[:, 0]
            expected = run_chain(target, prompt[request], int(prefix_lens[request]), tree.token[request, path])
            torch.testing.assert_close(logits[request, node], expected, rtol=1e-4, atol=1e-4)


def fill_prefix(target, prompt, prefix_lens, pools, rows):
    for request, length in enumerate(prefix_lens.tolist()):
        place = torch.arange(length)[None]
        block = rows[request, :length][None]
        target.run(prompt[request, :length][None], place, pools, block, torch.tensor([0]), block, None)


def run_chain(target, prompt, length, path):
    """Logits after the last token of prompt[:length] + path, run as one causal sequence."""
    tokens = torch.cat([prompt[:length], path])[None]
    slots = torch.arange(tokens.shape[1])[None]
    pools = new_pools(tokens.shape[1])
    return target.run(tokens, slots, pools, slots, torch.tensor([0]), slots, None)[0, -1]
