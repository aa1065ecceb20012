"""Time the tree operations on the GPU and print one JSON document.

    PYTHONPATH=patches python tests/gpu/bench_ops.py > result.json

A time is that of one launch among many in a CUDA graph, the gap to the next launch included: what the
operation adds to a captured decode step.
"""

from __future__ import annotations

import datetime
import json
import shlex
import statistics
import sys
from collections.abc import Callable, Iterator

import ops_cases
import torch
import triton
from sglang_ddtree.ops import Accepted, KVMover, Tree, accept, build_tree, finalize, write_mask_tails
from sglang_ddtree.ops.types import empty_finalized

DEPTHS, TOPK = 15, 8
BUDGETS = (16, 31, 63)
BATCHES = (1, 8, 32, 128)
BUILD_GOAL_US = {16: 5.0, 31: 8.0, 63: 15.0}
PREFIX = 2048
KV_BUFFERS, KV_ROW_BYTES = 60, 4096
MOVED_PATH = (0, 2, 5, 9)
LAUNCHES, REPLAYS = 50, 31


def microseconds(operation: Callable[[], object]) -> float:
    """Median time of one launch over replays of a graph of many."""
    operation()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            operation()
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / LAUNCHES)
    return round(statistics.median(times), 3)


def operations(batch: int, budget: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Name and launch of each operation on one random batch."""
    rng = torch.Generator().manual_seed(budget)
    width, block_size = budget + 1, DEPTHS + 1
    log_probs = torch.randn(batch, DEPTHS, TOPK, generator=rng).mul(2).log_softmax(-1)
    log_probs = log_probs.sort(-1, descending=True).values.cuda()
    token_ids = torch.arange(DEPTHS * TOPK).reshape(1, DEPTHS, TOPK).repeat(batch, 1, 1).cuda()
    root_ids = torch.zeros(batch, dtype=torch.int64).cuda()
    tree = Tree.empty(batch, width, "cuda")
    yield "build_tree", lambda: build_tree(log_probs, token_ids, root_ids, budget, out=tree)

    seq_lens = torch.full((batch,), PREFIX).cuda()
    finalized = empty_finalized(batch, width, "cuda")
    yield "finalize", lambda: finalize(tree, seq_lens, out=finalized)

    indptr = ops_cases.mask_indptr(seq_lens, width)
    mask = torch.zeros(batch * width * (PREFIX + width), dtype=torch.uint8, device="cuda")
    yield "write_mask_tails", lambda: write_mask_tails(mask, indptr, seq_lens, finalized[1])

    target = ops_cases.target_tokens(rng, Tree(*(field.cpu() for field in tree))).cuda()
    accepted = Accepted.empty(batch, block_size, "cuda")
    yield "accept", lambda: accept(tree, target, seq_lens, block_size, out=accepted)

    kv = [torch.zeros(batch * width, KV_ROW_BYTES, dtype=torch.uint8, device="cuda") for _ in range(KV_BUFFERS)]
    mover = KVMover(kv)
    slots = ops_cases.scattered_slots(rng, batch, width, batch * width).cuda()
    path = [*MOVED_PATH, *[-1] * (block_size - len(MOVED_PATH))]
    index = torch.tensor([path] * batch, dtype=torch.int32).cuda()
    commit_lens = torch.full((batch,), len(MOVED_PATH), dtype=torch.int32).cuda()
    yield "move_kv", lambda: mover(slots, index, commit_lens)


def measure() -> list[dict]:
    one = torch.zeros(1, device="cuda")
    rows = [{"operation": "floor: fill one element", "us": microseconds(one.zero_)}]
    for budget in BUDGETS:
        for batch in BATCHES:
            for name, operation in operations(batch, budget):
                row = {"operation": name, "budget": budget, "batch": batch, "us": microseconds(operation)}
                if name == "build_tree":
                    row |= {"goal_us": BUILD_GOAL_US[budget], "met": row["us"] <= BUILD_GOAL_US[budget]}
                rows.append(row)
    return rows


def main() -> int:
    if not torch.cuda.is_available():
        print("bench_ops needs a CUDA GPU, and torch.cuda.is_available() is false", file=sys.stderr)
        return 1
    document = {
        "what": "tree operations",
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join([sys.executable.rpartition("/")[2], *sys.argv]),
        "unit": f"microseconds per launch, median of {REPLAYS} replays of a graph of {LAUNCHES} launches",
        "depths": DEPTHS,
        "topk": TOPK,
        "prefix_tokens": PREFIX,
        "kv": {"buffers": KV_BUFFERS, "row_bytes": KV_ROW_BYTES, "rows_moved": len(MOVED_PATH) - 1},
        "rows": measure(),
    }
    print(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
