"""Merges candidates over several processes with SGLang's own group on gloo; run by `test_tensor_parallel`.

    python -m tests.unit.ranks TP FOLDER

FOLDER holds case-*.pt: hidden [b, L, H], head [V, H], top_k and padded, the rows that each rank's part is padded to.
Rank r writes what it found to r.pt: for each case log_probs and token_ids, then what the other checks gave.
"""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from sglang.srt.distributed import parallel_state
from sglang_ddtree.selfcheck import StartRefused
from sglang_ddtree.settings import Settings
from sglang_ddtree.tensor_parallel import Head, agreed, check_ranks


def part(head: torch.Tensor, padded: int, rank: int, group) -> Head:
    """Rows of a rank as SGLang splits a vocabulary: equal parts of the padded one, the padding left out."""
    first = min(rank * padded, len(head))
    return Head(head[first : first + padded], first, group)


def refusal(group, budget: int) -> str:
    """What the check of the ranks says to a worker with this budget; empty where it passes."""
    runner = SimpleNamespace(decode_cuda_graph_runner=None)
    settings = Settings(budget, top_k=8, block_size=8)
    tiers = SimpleNamespace(by_name={})
    worker = SimpleNamespace(tp_group=group, settings=settings, tiers=tiers, draft_model_runner=runner)
    try:
        check_ranks(worker)
    except StartRefused as error:
        return str(error)
    return ""


def main(tp: int, folder: Path) -> None:
    rank = 0
    for other in range(1, tp):
        if os.fork() == 0:
            rank = other
            break
    torch.set_num_threads(1)
    parallel_state.init_distributed_environment(
        world_size=tp, rank=rank, local_rank=rank, distributed_init_method=f"file://{folder}/store", backend="gloo"
    )
    group = parallel_state.get_world_group()
    found = {}
    for path in sorted(folder.glob("case-*.pt")):
        case = torch.load(path)
        head = part(case["head"], case["padded"], rank, group)
        found[path.stem] = head.candidates(case["hidden"], case["top_k"])
    found["agreed"] = agreed(torch.arange(6).view(2, 3) + 100 * rank, group)
    found["checked"] = [refusal(group, budget) for budget in (15, 15 + rank)]
    torch.save(found, folder / f"{rank}.pt")
    torch.distributed.barrier()
    # The children leave without the interpreter's end, which is the first process's.
    if rank:
        os._exit(0)
    for _ in range(1, tp):
        if os.wait()[1]:
            sys.exit("a rank failed")


main(int(sys.argv[1]), Path(sys.argv[2]))
