"""The decode step: draft a block, build a tree, verify it in one target pass, commit the accepted path."""

import logging

import torch
from sglang.srt.distributed import get_tp_group
from sglang.srt.managers.scheduler import GenerationBatchResult
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from sglang_ddtree import compat, ops, selfcheck, state, target_pass
from sglang_ddtree.algorithm import read_settings
from sglang_ddtree.draft_backlog import DraftBacklog
from sglang_ddtree.draft_input import next_input
from sglang_ddtree.metrics import StepCounters
from sglang_ddtree.penalty_tracker import PenaltyTracker
from sglang_ddtree.proposals import TreeProposer
from sglang_ddtree.sampling import choose_tokens
from sglang_ddtree.stage_times import StageClock
from sglang_ddtree.step_rules import StepRules
from sglang_ddtree.tensor_parallel import Head, agreed, check_ranks
from sglang_ddtree.tier_engines import TierEngines, leave_capture_to_tiers
from sglang_ddtree.tier_warmup import warm_up

logger = logging.getLogger(__name__)


class DDTreeWorker(DFlashWorkerV2):
    """DFlash's worker with a tree in place of the chain; prefill is inherited unchanged.

    No step waits for the device and none reads `req_to_token` after the verify pass was launched: the
    scheduler may hand the row to another request by then, so every slot is gathered beforehand.
    """

    def __init__(self, server_args, *args, **kwargs):
        self.settings = read_settings(server_args)
        with compat.drafter_arguments(server_args, self.settings.block_size) as drafter_args:
            super().__init__(drafter_args, *args, **kwargs)
        self.server_args = server_args
        self.tp_group = get_tp_group()
        self.clock = StageClock()
        self.counters = StepCounters(server_args, self.settings.tiers(), self.tp_group.rank_in_group)
        self.backlog = DraftBacklog(self._append_target_hidden_to_draft_kv_by_loc)
        if self.settings.table is not None:
            leave_capture_to_tiers(self.target_worker)

    def init_cuda_graphs(self):
        """Capture the tiers' graphs and the drafter's with the tree in it, then check what was captured."""
        selfcheck.check_target(self.model_runner)
        self.tiers = TierEngines(self.model_runner, self.settings)
        head = Head.of(self.model_runner.model, self.tp_group)
        self.proposer = TreeProposer(head, self.settings, compat.largest_batch(self.model_runner))
        self.kv_mover = ops.KVMover(kv_buffers(self.model_runner.token_to_kv_pool))
        rows = self.model_runner.req_to_token_pool.req_to_token.shape[0]
        self.penalties = PenaltyTracker(rows, self.settings.block_size, self.device)
        super().init_cuda_graphs()
        if self.settings.table is not None:
            warm_up(self)
        selfcheck.check_widths(self)
        check_ranks(self)
        self.graphs = self.tiers.captured
        logger.info("%s", state.describe(self))

    def _maybe_build_draft_sampler(self):
        # Timed stages need the tree as a stage of its own, outside the drafter's graph.
        return None if self.clock.enabled else self.proposer

    def _make_next_draft_input_prefill(self, *, bonus_tokens, seq_lens):
        return next_input(agreed(bonus_tokens, self.tp_group), seq_lens)

    def _make_next_draft_input_decode(self, *, bonus_tokens, new_seq_lens):
        return next_input(bonus_tokens, new_seq_lens)

    def forward_batch_generation(self, batch, on_publish=None, **extra) -> GenerationBatchResult:
        """One step of the scheduler's batch; a prefill or an idle batch goes the inherited way."""
        decoding = not (batch.forward_mode.is_extend() or batch.is_extend_in_batch or batch.forward_mode.is_idle())
        self.grammar_barrier = extra.get("grammar_barrier")
        if decoding and batch.spec_info is not None:
            return self._decode(batch, on_publish)
        self.backlog.flush()
        result = super().forward_batch_generation(batch, on_publish, **extra)
        self.penalties.prefilled(batch, result.next_token_ids)
        return result

    def _decode(self, batch, on_publish) -> GenerationBatchResult:
        requests, prefix_lens = len(batch.seq_lens), batch.seq_lens
        tier = self.tiers.choose(requests)
        shape = tier.shape
        self.clock.start()
        rules = StepRules(batch, self.penalties, self.grammar_barrier)
        if tier.drafts or not self.backlog.follows(batch):
            self.backlog.flush()
        slots = self._gather_slots(batch)
        plan = compat.SlotPlan(self, batch, slots, compat.get_reserved(batch.spec_info)[0])
        block_slots = slots[:, : shape.block_size].contiguous()
        tree, drafted_in_graph = self._propose(batch, tier, block_slots, plan)
        rules.drafted(tree)

        node_slots = slots[:, : shape.width].contiguous()
        with self.tiers.active(tier):
            target_out, positions = self._run_target(batch, tier, tree, node_slots, plan)
        self.clock.mark("verify")
        logits = target_out.logits_output.next_token_logits
        rules.apply(logits, shape)
        if batch.return_logprob:
            # They are computed from the logits before the temperature, which is applied in place.
            logits = logits.clone()
        chosen = choose_tokens(self.model_runner.sampler, logits, batch.sampling_info, positions)
        chosen = agreed(chosen, self.tp_group)
        accepted = ops.accept(tree, chosen, prefix_lens, shape.block_size)
        if on_publish is not None:
            on_publish(accepted.new_seq_lens)
        self.clock.mark("accept")
        self._commit(batch, tier, target_out.logits_output, block_slots, node_slots, accepted, prefix_lens)
        rules.committed(accepted)
        if batch.return_logprob:
            compat.accepted_logprobs(batch, target_out.logits_output, chosen.flatten(), accepted.rows(shape.width))
        self.clock.mark("commit")
        eager = not (drafted_in_graph and target_out.can_run_cuda_graph)
        self.counters.launched(tier, requests, self.graphs and eager)
        return self._result(target_out, accepted, rules)

    def on_verify_complete_cpu(self, num_correct_drafts_per_req, batch_size=0) -> None:
        """The scheduler's call for each step in order, once it knows what was committed."""
        if batch_size:
            self.counters.committed(sum(num_correct_drafts_per_req) + batch_size)

    def _propose(self, batch, tier, block_slots, plan) -> tuple[ops.Tree, bool]:
        """Draft a block per request and grow the trees; says whether the drafter ran in its CUDA graph."""
        requests, roots = len(batch.seq_lens), batch.spec_info.bonus_tokens
        if not tier.drafts:
            self.clock.mark("draft")
            self.clock.mark("tree")
            return self.proposer.root(roots), True
        out, input_ids = self._draft(batch, roots, block_slots, plan)
        self.clock.mark("draft")
        if not (self._draft_sampler is not None and out.can_run_graph):
            self.proposer(out.logits_output.hidden_states, input_ids)
        tree = self.proposer.tree(tier, requests)
        self.clock.mark("tree")
        return tree, bool(out.can_run_graph)

    def _run_target(self, batch, tier, tree, node_slots, plan):
        """The target's output over all nodes of a tier, and their positions int64 [b, W]."""
        if tier.is_tree:
            positions, ancestors = ops.finalize(tree, batch.seq_lens)
        else:
            positions, ancestors = batch.seq_lens[:, None] + self._block_pos_offsets[: tier.shape.width], None
        if tier.drafts:
            return target_pass.verify(self, tier, batch, tree, positions, ancestors, node_slots, plan), positions
        return target_pass.decode(self, batch, tree.token[:, 0], node_slots[:, 0]), positions

    def _gather_slots(self, batch) -> torch.Tensor:
        """Slots of each request's next max(W, D) positions; int64 [b, max(W, D)]."""
        count = max(self.settings.engine_width, self.settings.block_size)
        columns = batch.seq_lens[:, None] + torch.arange(count, device=self.device)
        rows = self.model_runner.req_to_token_pool.req_to_token
        return rows[batch.req_pool_indices[:, None].long(), columns.long()].long()

    def _draft(self, batch, root, slots, plan):
        """Run the drafter on [root, mask, mask, ...]; returns its output (hidden states [b * D, H]) and the ids."""
        requests, block = slots.shape
        ids = torch.full((requests, block), int(self._mask_token_id), dtype=torch.int64, device=self.device)
        ids[:, 0] = root
        embeds = self.model_runner.model.get_input_embeddings()(ids)
        seq_lens, seq_lens_cpu = self._draft_lens(batch, slots)
        forward_batch = ForwardBatch(
            forward_mode=ForwardMode.TARGET_VERIFY,
            batch_size=requests,
            input_ids=ids.flatten(),
            req_pool_indices=batch.req_pool_indices,
            seq_lens=seq_lens,
            out_cache_loc=slots.flatten(),
            seq_lens_sum=int(seq_lens_cpu.sum()),
            seq_lens_cpu=seq_lens_cpu,
            positions=(batch.seq_lens[:, None] + self._block_pos_offsets).flatten(),
            input_embeds=embeds.view(requests * block, -1),
            spec_algorithm=SpeculativeAlgorithm.DFLASH,
            spec_info=self._draft_block_spec_info,
            capture_hidden_mode=CaptureHiddenMode.NULL,
            **plan.draft_batch_fields(batch, requests * block),
        )
        plan.bind_draft(forward_batch, slots, seq_lens, seq_lens_cpu)
        with torch.inference_mode():
            return self.draft_model_runner.forward(forward_batch), forward_batch.input_ids

    def _draft_lens(self, batch, slots) -> tuple[torch.Tensor, torch.Tensor]:
        """What the drafter attends to before its block: device lengths [b], and a host bound int32 [b]."""
        requests, block = slots.shape
        self._ensure_draft_block_buffers(requests)
        bound = self._draft_seq_lens_cpu_buf[:requests]
        if not self.use_compact_draft_cache:
            bound.copy_(target_pass.host_bound(batch, block))
            return batch.seq_lens, bound
        windowed = self._compute_compact_draft_seq_lens(batch.seq_lens)
        compat.fill_compact_seq_lens(self, batch, batch.spec_info, windowed, bound)
        self._rebuild_compact_draft_cache(
            req_pool_indices=batch.req_pool_indices,
            prefix_lens=batch.seq_lens,
            draft_prefix_lens=windowed,
            verify_out_cache_loc_2d=slots,
            bs=requests,
            block_size=block,
        )
        return windowed, bound

    def _commit(self, batch, tier, logits_output, block_slots, node_slots, accepted, prefix_lens) -> None:
        """Put the accepted path's KV where a chain would have it, in the target and in the drafter."""
        hidden, positions = logits_output.hidden_states, prefix_lens[:, None] + self._block_pos_offsets
        # Under overlap scheduling the result is copied to the host, and this is its largest part.
        logits_output.hidden_states = None
        if not tier.drafts:
            self.backlog.add(batch, hidden, node_slots[:, 0], positions[:, 0])
            return
        if tier.is_tree:
            self.kv_mover(node_slots, accepted.index, accepted.commit_lens)
            hidden = hidden[accepted.rows(tier.shape.width).flatten()]
        self._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=hidden,
            cache_loc=block_slots.flatten(),
            cache_loc_2d=block_slots,
            positions=positions.flatten(),
            commit_lens=accepted.commit_lens,
        )

    def _result(self, target_out, accepted, rules) -> GenerationBatchResult:
        return GenerationBatchResult(
            logits_output=target_out.logits_output,
            next_token_ids=accepted.out_tokens.flatten(),
            accept_lens=accepted.commit_lens,
            can_run_cuda_graph=target_out.can_run_cuda_graph,
            next_draft_input=next_input(accepted.bonus, accepted.new_seq_lens),
            speculative_num_draft_tokens=accepted.out_tokens.shape[1],
            new_seq_lens=accepted.new_seq_lens,
            extra_keep_alive_refs=rules.keep_alive(),
            **compat.result_fields(target_out),
        )


def kv_buffers(pool) -> list[torch.Tensor]:
    """Every tensor of a KV pool that is indexed by slot."""
    if hasattr(pool, "k_buffer"):
        return [*pool.k_buffer, *pool.v_buffer]
    return list(pool.kv_buffer)
