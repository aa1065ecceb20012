"""Input of the target's verify pass, and the mask that lets a node see only its ancestors."""

from dataclasses import dataclass

import torch
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
from sglang.srt.speculative.dflash_info import DFlashVerifyInput

from sglang_ddtree import compat, ops


@dataclass
class DDTreeVerifyInput(DFlashVerifyInput):
    """`draft_token` int64 [b * W] and `positions` int64 [b * W] of the nodes, plus who sees whom.

    ancestors: bool [b, W, W], row i is true at node i and at every node above it; None for a chain.
    """

    ancestors: torch.Tensor | None = None

    def prepare_for_verify(self, batch, target_worker) -> ForwardBatch:
        """Package the verify forward and initialise the attention metadata, mask included.

        `batch.seq_lens_cpu` must hold the host bound of each request's length after the step.
        """
        runner = target_worker.model_runner
        batch.input_ids, batch.spec_info = self.draft_token, self
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        forward_batch = ForwardBatch.init_new(
            batch,
            runner,
            capture_hidden_mode=self.capture_hidden_mode,
            return_hidden_states_before_norm=False,
            **compat.init_new_fields(self),
        )
        if runner.attn_backend.__class__.__name__ == "TritonAttnBackend":
            self._prepare_triton(forward_batch, runner)
        else:
            runner.attn_backend.init_forward_metadata(forward_batch)
        return forward_batch

    def _prepare_triton(self, forward_batch, runner) -> None:
        backend, graphs = runner.attn_backend, runner.decode_cuda_graph_runner
        captured = bool(graphs and graphs.can_run_graph(forward_batch))
        if self.ancestors is None:
            # A chain is causal by itself.
            graphs.load_batch(forward_batch) if captured else backend.init_forward_metadata(forward_batch)
            return
        if captured:
            mask = compat.captured_mask(backend)
            # The backend copies what it is given into the captured mask each step; one element says "masked".
            self.custom_mask = mask[:1]
            graphs.load_batch(forward_batch)
        else:
            lens = forward_batch.seq_lens_cpu
            cells = int(lens.sum() + self.draft_token_num * lens.numel()) * self.draft_token_num
            mask = torch.empty(cells, dtype=torch.uint8, device=self.positions.device)
            self.custom_mask = mask
            backend.init_forward_metadata(forward_batch)
        # The extend kernel never reads the prefix part; the unified one of deterministic mode does.
        fill_prefix = bool(getattr(backend, "enable_deterministic", False))
        ops.write_mask_tails(mask, backend.mask_indptr, forward_batch.seq_lens, self.ancestors, fill_prefix)
