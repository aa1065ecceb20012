"""A seeded request draws at each node of a tree what it draws there without speculation.

The seeded draw hashes seed and position in a Triton kernel, which runs in Triton's interpreter here. The
interpreter is chosen when the kernel is decorated, so the comparison runs in a process of its own.
"""

import os
import subprocess
import sys

import pytest

DRAWN = "nodes draw as plain steps do"


@pytest.mark.slow
def test_a_node_draws_what_a_plain_step_draws_at_its_position():
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert DRAWN in done.stdout


def compare() -> None:
    import torch
    from sglang.srt.layers.sampler import Sampler
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
    from sglang_ddtree import compat, ops
    from sglang_ddtree.sampling import choose_tokens

    vocab, depth, requests = 16, 3, 4
    rng = torch.Generator().manual_seed(1)
    values, ids = torch.randn(requests, depth, vocab, generator=rng).log_softmax(-1).topk(3)
    tree = ops.build_tree(values.contiguous(), ids.contiguous(), torch.zeros(requests, dtype=torch.int64), 9)
    committed = torch.tensor([5, 17, 5, 300])
    positions, _ = ops.finalize(tree, committed)
    logits = torch.randn(requests, 10, vocab, generator=rng)
    sampler = Sampler.__new__(Sampler)  # its groups of processes play no part in the draw

    def parameters(rows: slice) -> SamplingBatchInfo:
        count = len(range(requests)[rows])
        return SamplingBatchInfo(
            temperatures=torch.tensor([[0.7], [1.0], [1.3], [1.0]])[rows],
            top_ps=torch.ones(count),
            top_ks=torch.full((count,), vocab),
            min_ps=torch.zeros(count),
            is_all_greedy=False,
            is_any_greedy=False,
            need_top_p_sampling=False,
            need_top_k_sampling=False,
            need_min_p_sampling=False,
            vocab_size=vocab,
            sampling_seed=torch.tensor([42, 7, 42, 2**40 + 3])[rows],
            device="cpu",
        )

    chosen = choose_tokens(sampler, logits.flatten(0, 1).clone(), parameters(slice(None)), positions)
    for request in range(requests):
        info = parameters(slice(request, request + 1))
        for node in range(10):
            # A plain step draws at the position of the token that it is given, which is the node's own.
            position = committed[request : request + 1] + tree.depth[request, node]
            probs = torch.softmax(logits[request, node][None] / info.temperatures, dim=-1)
            alone = compat.sampled_tokens(sampler, probs, info, position, True)
            assert int(alone) == int(chosen[request, node]), (request, node)
    assert len(chosen.unique()) > 4
    print(DRAWN)


if __name__ == "__main__":
    compare()
