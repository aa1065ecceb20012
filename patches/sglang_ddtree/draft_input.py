"""State that a batch carries from one decode step to the next, and the KV slots reserved for the next one."""

from dataclasses import dataclass

import torch
from sglang.srt.mem_cache.allocation import alloc_for_spec_decode
from sglang.srt.speculative.dflash_info_v2 import DFlashDraftInputV2

from sglang_ddtree import compat


@dataclass
class DDTreeDraftInput(DFlashDraftInputV2):
    """The DFlash state, with a reserve that fits both widths and whole pages.

    penalizers: the batch's penalizers where a request uses one; the forward's copy of the sampling parameters
        lacks them.
    """

    penalizers: object | None = None

    def prepare_for_decode(self, batch) -> None:
        """Reserve slots for the next step of every request.

        The committed length lags by one step under overlap scheduling, hence a reserve of two steps. It must
        equal the scheduler's own estimate (`compat.decode_reserve`), or a batch that was promised memory
        would not get it.
        """
        if batch.batch_size() == 0:
            return
        batch.maybe_evict_swa()
        penalizers = batch.sampling_info.penalizer_orchestrator
        self.penalizers = penalizers if penalizers.is_required else None
        page = batch.token_to_kv_pool_allocator.page_size
        current = torch.tensor([req.kv.kv_allocated_len for req in batch.reqs], dtype=torch.int32)
        committed = torch.tensor([compat.committed_len(req) for req in batch.reqs], dtype=torch.int64)
        wanted = -(-(committed + compat.decode_reserve()) // page) * page
        reserved = torch.maximum(current, wanted.int())
        _allocate(batch, current, reserved)
        for req in batch.reqs:
            req.decode_batch_idx += 1
        # Overlap scheduling overwrites the lengths with the published ones.
        batch.seq_lens_cpu = committed
        batch.seq_lens_sum = int(committed.sum())
        compat.set_reserved(self, reserved, int(reserved.sum()))


def _allocate(batch, current: torch.Tensor, reserved: torch.Tensor) -> None:
    alloc_for_spec_decode(
        batch.tree_cache,
        batch.req_to_token_pool,
        reqs=batch.reqs,
        req_pool_indices=batch.req_pool_indices,
        cur_kv_lens=current.to(batch.device, non_blocking=True),
        cur_kv_lens_cpu=current,
        nxt_kv_lens=reserved.to(batch.device, non_blocking=True),
        nxt_kv_lens_cpu=reserved,
        num_needed_tokens=int((reserved - current).sum()),
        batch=batch,
    )


def next_input(bonus_tokens: torch.Tensor, seq_lens: torch.Tensor) -> DDTreeDraftInput:
    """Input of the next step.

    Args:
        bonus_tokens: int64 [b], the root of the next tree.
        seq_lens: int64 [b], committed tokens.
    """
    requests, device = seq_lens.numel(), bonus_tokens.device
    return DDTreeDraftInput(
        topk_p=torch.empty((requests, 0), device=device),
        topk_index=torch.empty((requests, 0), device=device, dtype=torch.int64),
        bonus_tokens=bonus_tokens.long(),
        new_seq_lens=seq_lens.long(),
        hidden_states=torch.empty((requests, 0), device=device, dtype=torch.float16),
    )
