"""The Triton kernels on a GPU against the plain-torch references, bit for bit."""

from __future__ import annotations

import ops_cases
import pytest
import torch
from sglang_ddtree.ops import Accepted, KVMover, Tree, accept, build_tree, finalize, write_mask_tails
from sglang_ddtree.ops.reference import accept as reference_accept
from sglang_ddtree.ops.reference import build as reference_build
from sglang_ddtree.ops.reference import finalize as reference_finalize
from sglang_ddtree.ops.reference import mask as reference_mask
from sglang_ddtree.ops.reference import move as reference_move
from sglang_ddtree.ops.types import empty_finalized

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU, and torch.cuda.is_available() is false"
)

DEVICE = "cuda"
UNWRITTEN = 77
# (L, K, B): a request is a case, and each shape sees 1,114 of them: 12,254 in all
SHAPES = [
    (1, 5, 5),
    (7, 8, 3),
    (7, 8, 7),
    (7, 8, 8),
    (7, 8, 16),
    (7, 1, 15),
    (15, 4, 5),
    (15, 8, 31),
    (15, 8, 63),
    (6, 13, 40),
    (15, 8, 127),
]
BATCHES = [1, 2, 3, 7, 16, 31, 48, 64, 97, 128, 160]
TRIALS = 150


def guarded(fields: tuple, batch: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Views of the first ``batch`` rows, and of the row after them that no kernel may touch."""
    for field in fields:
        field.fill_(UNWRITTEN if field.dtype != torch.bool else True)
    return [field[:batch] for field in fields], [field[batch:].clone() for field in fields]


def assert_same(got, want, what: str) -> None:
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        assert torch.equal(a.cpu(), b.cpu()), f"{what}: output {number} differs"


class Case:
    """Inputs of one step on CPU and on the GPU, and what the references make of them."""

    def __init__(self, seed: int, batch: int, depths: int, topk: int, budget: int):
        rng = torch.Generator().manual_seed(seed)
        self.batch, self.width, self.block_size, self.budget = batch, budget + 1, depths + 1, budget
        draft = ops_cases.draft(rng, batch, depths, topk)
        self.draft = [draft.log_probs, draft.token_ids, draft.root_ids]
        self.seq_lens = torch.randint(0, 200, (batch,), generator=rng)
        self.indptr = ops_cases.mask_indptr(self.seq_lens, self.width)
        self.tree = reference_build.build_tree(*self.draft, budget)
        self.finalized = reference_finalize.finalize(self.tree, self.seq_lens)
        self.target = ops_cases.target_tokens(rng, self.tree)
        self.accepted = reference_accept.accept(self.tree, self.target, self.seq_lens, self.block_size)

    def mask(self, fill_prefix: bool, size: int) -> torch.Tensor:
        mask = torch.full((size,), UNWRITTEN, dtype=torch.uint8)
        ancestors = self.finalized[1]
        reference_mask.write_mask_tails(mask, self.indptr, self.seq_lens, ancestors, fill_prefix)
        return mask


@pytest.mark.parametrize(("depths", "topk", "budget"), SHAPES)
def test_kernels_equal_the_references(depths, topk, budget):
    for seed in range(2 * len(BATCHES)):
        case = Case(1000 * budget + seed, BATCHES[seed % len(BATCHES)], depths, topk, budget)
        batch, width, block_size = case.batch, case.width, case.block_size
        seq_lens = case.seq_lens.to(DEVICE)

        fields = Tree.empty(batch + 1, width, DEVICE)
        views, guards = guarded(fields, batch)
        tree = build_tree(*(x.to(DEVICE) for x in case.draft), budget, out=Tree(*views))
        assert_same(tree, case.tree, "build_tree")
        assert_same([f[batch:] for f in fields], guards, "build_tree past its end")

        fields = empty_finalized(batch + 1, width, DEVICE)
        views, guards = guarded(fields, batch)
        _, ancestors = finalize(tree, seq_lens, out=tuple(views))
        assert_same(views, case.finalized, "finalize")
        assert_same([f[batch:] for f in fields], guards, "finalize past its end")

        fill_prefix = seed < len(BATCHES)
        size = int(case.indptr[-1]) + 33
        mask = torch.full((size,), UNWRITTEN, dtype=torch.uint8, device=DEVICE)
        write_mask_tails(mask, case.indptr.to(DEVICE), seq_lens, ancestors, fill_prefix=fill_prefix)
        assert_same([mask], [case.mask(fill_prefix, size)], "write_mask_tails")

        fields = Accepted.empty(batch + 1, block_size, DEVICE)
        views, guards = guarded(fields, batch)
        accept(tree, case.target.to(DEVICE), seq_lens, block_size, out=Accepted(*views))
        assert_same(views, case.accepted, "accept")
        assert_same([f[batch:] for f in fields], guards, "accept past its end")


@pytest.mark.parametrize("seq_dtype", [torch.int32, torch.int64])
def test_narrow_integers_and_allocated_results_give_the_same(seq_dtype):
    case = Case(5, 33, 7, 8, 16)
    seq_lens = case.seq_lens.to(DEVICE, seq_dtype)
    tree = build_tree(*(x.to(DEVICE) for x in case.draft), case.budget)
    assert_same(tree, case.tree, "build_tree")
    finalized = finalize(tree, seq_lens)
    assert_same(finalized, case.finalized, "finalize")
    mask = torch.zeros(int(case.indptr[-1]), dtype=torch.bool, device=DEVICE)
    write_mask_tails(mask, case.indptr.to(DEVICE, seq_dtype), seq_lens, finalized[1].to(torch.uint8), True)
    assert_same([mask], [case.mask(True, mask.numel()).bool()], "write_mask_tails")
    accepted = accept(tree, case.target.to(DEVICE, seq_dtype), seq_lens, case.block_size)
    assert_same(accepted, case.accepted, "accept")


def test_an_empty_batch_is_no_error():
    tree = build_tree(
        torch.empty(0, 7, 8, device=DEVICE),
        torch.empty(0, 7, 8, dtype=torch.int64, device=DEVICE),
        torch.empty(0, dtype=torch.int64, device=DEVICE),
        16,
    )
    assert tree.token.shape == (0, 17)


def random_bytes(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, device=DEVICE)


# name -> KV buffers of so many slots
POOLS = {
    "rows of 1024 bytes": lambda slots: [random_bytes(slots, 8, 128).view(torch.float16) for _ in range(8)],
    "rows of 4096 bytes": lambda slots: [random_bytes(slots, 16, 256).view(torch.bfloat16) for _ in range(8)],
    "rows of 8192 bytes": lambda slots: [random_bytes(slots, 32, 256).view(torch.bfloat16) for _ in range(8)],
    "rows of 20000 bytes": lambda slots: [random_bytes(slots, 20000).view(torch.float32) for _ in range(2)],
    "MLA latent": lambda slots: [random_bytes(slots, 1, 1152).view(torch.bfloat16) for _ in range(8)],
    "MLA latent of 8 bits": lambda slots: [random_bytes(slots, 1, 656) for _ in range(8)],
    "float8": lambda slots: [random_bytes(slots, 4, 64).view(torch.float8_e4m3fn) for _ in range(8)],
    "rows of 66 bytes": lambda slots: [random_bytes(slots, 3, 22).view(torch.float16) for _ in range(8)],
    "rows of 33 bytes": lambda slots: [random_bytes(slots, 33) for _ in range(3)],
    "interleaved rows": lambda slots: list(random_bytes(slots, 3, 512).view(torch.bfloat16).unbind(1)),
    "unequal rows": lambda slots: [
        random_bytes(slots, 2, 256).view(torch.float16),
        random_bytes(slots, 1, 1152).view(torch.bfloat16),
        random_bytes(slots, 4).view(torch.float32)[:, 0],
        random_bytes(slots, 5000),
    ],
}


@pytest.mark.parametrize("pool", POOLS)
def test_rows_move_in_place_as_into_a_copy(pool):
    rng = torch.Generator().manual_seed(1)
    slots = 32 * 64 + 5
    buffers = POOLS[pool](slots)
    as_bytes = [(b if b.dim() > 1 else b[:, None]).view(torch.uint8) for b in buffers]
    mover = KVMover(buffers)
    for trial in range(TRIALS):
        batch, width, block_size = (1, 8, 32)[trial % 3], (64, 17, 6)[trial // 3 % 3], (16, 8, 16)[trial % 3]
        index, commit_lens = ops_cases.accepted_paths(rng, batch, width, block_size)
        table = ops_cases.scattered_slots(rng, batch, width, slots)
        step = table.to(DEVICE), index.to(DEVICE), commit_lens.to(DEVICE)
        expected = [buffer.clone() for buffer in as_bytes]
        reference_move.KVMover(expected)(*step)
        mover(*step)
        for number, (got, want) in enumerate(zip(as_bytes, expected, strict=True)):
            assert torch.equal(got, want), f"trial {trial}: buffer {number} differs"


class Step:
    """All operations of a decode step over static buffers, as the engine captures them."""

    def __init__(self, batch: int, depths: int, topk: int, budget: int):
        width, block_size = budget + 1, depths + 1
        self.budget, self.block_size = budget, block_size
        self.log_probs = torch.full((batch, depths, topk), -1.0, device=DEVICE)
        self.token_ids = torch.zeros((batch, depths, topk), dtype=torch.int64, device=DEVICE)
        self.root_ids = torch.zeros(batch, dtype=torch.int64, device=DEVICE)
        self.seq_lens = torch.zeros(batch, dtype=torch.int64, device=DEVICE)
        self.indptr = ops_cases.mask_indptr(self.seq_lens, width)
        self.target = torch.zeros((batch, width), dtype=torch.int64, device=DEVICE)
        self.mask = torch.zeros(batch * width * (200 + width), dtype=torch.uint8, device=DEVICE)
        self.tree = Tree.empty(batch, width, DEVICE)
        self.finalized = empty_finalized(batch, width, DEVICE)
        self.accepted = Accepted.empty(batch, block_size, DEVICE)
        self.slots = torch.arange(batch * width, device=DEVICE).reshape(batch, width)
        self.kv = [random_bytes(batch * width, 512) for _ in range(4)]
        self.mover = KVMover(self.kv)

    def run(self) -> None:
        build_tree(self.log_probs, self.token_ids, self.root_ids, self.budget, out=self.tree)
        finalize(self.tree, self.seq_lens, out=self.finalized)
        write_mask_tails(self.mask, self.indptr, self.seq_lens, self.finalized[1])
        accept(self.tree, self.target, self.seq_lens, self.block_size, out=self.accepted)
        self.mover(self.slots, self.accepted.index, self.accepted.commit_lens)

    def load(self, case: Case, slots: torch.Tensor) -> None:
        inputs = [self.log_probs, self.token_ids, self.root_ids, self.seq_lens, self.indptr, self.target]
        for static, value in zip(inputs, [*case.draft, case.seq_lens, case.indptr, case.target], strict=True):
            static.copy_(value)
        self.slots.copy_(slots)
        self.mask.fill_(UNWRITTEN)


@pytest.mark.parametrize(
    ("batch", "depths", "topk", "budget"), [(1, 7, 8, 16), (5, 15, 8, 63), (33, 15, 4, 5), (160, 7, 8, 31)]
)
def test_a_captured_step_follows_its_inputs(batch, depths, topk, budget):
    step = Step(batch, depths, topk, budget)
    step.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.run()

    rng = torch.Generator().manual_seed(2)
    for seed in range(8):
        case = Case(seed, batch, depths, topk, budget)
        width = case.width
        step.load(case, ops_cases.scattered_slots(rng, batch, width, batch * width))
        kv = [buffer.clone() for buffer in step.kv]
        graph.replay()
        assert_same(step.tree, case.tree, "build_tree")
        assert_same(step.finalized, case.finalized, "finalize")
        assert_same([step.mask], [case.mask(False, step.mask.numel())], "write_mask_tails")
        assert_same(step.accepted, case.accepted, "accept")
        reference_move.KVMover(kv)(step.slots, step.accepted.index, step.accepted.commit_lens)
        assert_same(step.kv, kv, "KVMover")


def test_a_step_neither_synchronises_nor_allocates():
    step = Step(8, 7, 8, 16)
    step.run()
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    try:
        step.run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before


def test_the_batch_size_compiles_nothing(monkeypatch):
    import triton

    Step(8, 7, 8, 16).run()
    compiled = []

    def record(*, repr, **_):
        compiled.append(repr)

    monkeypatch.setattr(triton.knobs.runtime, "jit_cache_hook", record)
    for batch in (1, 2, 3, 16, 17, 160):
        Step(batch, 7, 8, 16).run()
    assert compiled == []
    Step(8, 7, 8, 19).run()
    assert compiled  # the hook does see a new width
