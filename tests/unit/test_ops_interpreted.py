"""Each Triton kernel in Triton's interpreter on CPU against its reference.

The interpreter is chosen when a kernel is decorated, so each test runs this file in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# (L, K, B): one depth, the chain, a block wider than the tree, top-k not a power of two, every tile size
SHAPES = [(1, 5, 5), (7, 1, 9), (15, 4, 5), (7, 8, 16), (6, 3, 31), (7, 5, 63), (15, 8, 127)]


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["build", "finalize", "mask", "accept", "move"])
def test_kernel_equals_reference(operation):
    pytest.importorskip("triton")
    paths = [str(ROOT / "patches"), str(ROOT / "tests" / "gpu")]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, __file__, operation]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == f"{operation}: {len(SHAPES)} shapes equal"


def run(operation: str) -> None:
    import ops_cases
    import torch
    from sglang_ddtree.ops.reference import accept, build, finalize, mask, move
    from sglang_ddtree.ops.triton import accept as accept_kernel
    from sglang_ddtree.ops.triton import build as build_kernel
    from sglang_ddtree.ops.triton import finalize as finalize_kernel
    from sglang_ddtree.ops.triton import mask as mask_kernel
    from sglang_ddtree.ops.triton import move as move_kernel

    def same(got, want) -> None:
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True)), (operation, got, want)

    for depths, topk, budget in SHAPES:
        rng = torch.Generator().manual_seed(budget)
        batch, width, block_size = 5, budget + 1, depths + 1
        draft = ops_cases.draft(rng, batch, depths, topk)
        inputs = draft.log_probs, draft.token_ids, draft.root_ids, budget
        tree = build.build_tree(*inputs)
        seq_lens = torch.tensor([0, 1, 30, 511, 700])
        positions_and_ancestors = finalize.finalize(tree, seq_lens)
        if operation == "build":
            same(build_kernel.build_tree(*inputs), tree)
        elif operation == "finalize":
            same(finalize_kernel.finalize(tree, seq_lens), positions_and_ancestors)
        elif operation == "mask":
            indptr = ops_cases.mask_indptr(seq_lens, width)
            for fill_prefix in (False, True):
                want, got = (torch.full((int(indptr[-1]) + 9,), 7, dtype=torch.uint8) for _ in range(2))
                mask.write_mask_tails(want, indptr, seq_lens, positions_and_ancestors[1], fill_prefix)
                mask_kernel.write_mask_tails(got, indptr, seq_lens, positions_and_ancestors[1], fill_prefix)
                same([got], [want])
        elif operation == "accept":
            target = ops_cases.target_tokens(rng, tree)
            want = accept.accept(tree, target, seq_lens, block_size)
            same(accept_kernel.accept(tree, target, seq_lens, block_size), want)
        else:
            slots = ops_cases.scattered_slots(rng, batch, width, 800)
            path = ops_cases.accepted_paths(rng, batch, width, block_size)
            want = [torch.randn(800, 3, 7).half(), torch.randn(800, 1025), torch.zeros(800, 5).byte()]
            got = [buffer.clone() for buffer in want]
            move.KVMover(want)(slots, *path)
            move_kernel.KVMover(got)(slots, *path)
            same(got, want)
    print(f"{operation}: {len(SHAPES)} shapes equal")


if __name__ == "__main__":
    run(sys.argv[1])
