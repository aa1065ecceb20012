"""Everything that differs between the supported SGLang versions, and nothing else.

`V23` code serves 0.5.23, the other branch 0.5.16. Callers never look at the version themselves.
"""

import contextlib
from copy import deepcopy
from importlib.metadata import version

SGLANG = version("sglang")
V23 = SGLANG == "0.5.23"
FLAG_DP_ATTENTION = "--attn-dp-size" if V23 else "--enable-dp-attention"

# Hooks that only one version needs, as in `hooks`.
_DFLASH = "sglang.srt.speculative.dflash_utils"
HOOKS = {} if V23 else {f"{_DFLASH}.scale_kv_cell_size_per_token_for_dflash": "pool_size.cell_size_with_drafter"}


def prepare_process() -> None:
    """Adjust SGLang's own tables before server arguments are parsed."""
    if V23:
        from sglang.srt.arg_groups.choices import DRAFT_ATTENTION_BACKEND_CHOICES

        if "torch_native" not in DRAFT_ATTENTION_BACKEND_CHOICES:
            DRAFT_ATTENTION_BACKEND_CHOICES.append("torch_native")


def hf_config(server_args, path: str) -> dict:
    """A checkpoint's config as a dict, read the way SGLang reads it."""
    from sglang.srt.utils.hf_transformers_utils import get_config

    return get_config(path, trust_remote_code=server_args.trust_remote_code).to_dict()


def splits_attention_by_data(server_args) -> bool:
    """Whether attention ranks have requests of their own; 0.5.23 turns the old flag into the new one."""
    return server_args.attn_dp_size > 1 if V23 else server_args.enable_dp_attention


def spec_config():
    """The resolved speculative settings of this process."""
    if V23:
        from sglang.srt.runtime_context import get_spec

        return get_spec()
    from sglang.srt.runtime_context import get_server_args

    return get_server_args()


def drafter_cell_size(layers: int) -> int:
    """Bytes of KV that one token takes in the drafter's pool on one GPU; 0.5.23 works it out by itself."""
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.mem_cache.kv_cache_dtype import configure_kv_cache_dtype
    from sglang.srt.runtime_context import get_parallel, get_server_args

    from sglang_ddtree.pool_size import kv_bytes_per_token

    args = get_server_args()
    drafter = ModelConfig.from_server_args(
        args,
        model_path=args.speculative_draft_model_path,
        model_revision=args.speculative_draft_model_revision,
        is_draft_model=True,
    )
    _, dtype = configure_kv_cache_dtype(
        server_args_kv_cache_dtype=args.kv_cache_dtype,
        model=None,
        model_dtype=drafter.dtype,
        is_draft_worker=True,
        is_dflash=True,
        speculative_draft_attention_backend=args.speculative_draft_attention_backend,
    )
    heads = drafter.get_num_kv_heads(get_parallel().attn_tp_size)
    return kv_bytes_per_token(heads, drafter.head_dim, drafter.v_head_dim, layers, dtype.itemsize)


def engine_block_size() -> int:
    """D of the running engine."""
    return int(spec_config().speculative_dflash_block_size)


@contextlib.contextmanager
def drafter_arguments(server_args, block_size: int):
    """Server arguments under which the drafter's worker is built: its width is D, not the target's W."""
    if V23:
        with spec_config().override(speculative_num_draft_tokens=block_size):
            yield server_args
        return
    clone = deepcopy(server_args)
    clone.override("ddtree.drafter", speculative_num_draft_tokens=block_size)
    # A value cached before the override would size the drafter's buffers by W.
    clone.__dict__.pop("max_speculative_num_draft_tokens", None)
    yield clone


@contextlib.contextmanager
def target_width(server_args, width: int):
    """Settings under which an attention backend of the target is built for steps of `width` nodes."""
    if V23:
        with spec_config().override(speculative_num_draft_tokens=width):
            yield
        return
    engine = server_args.speculative_num_draft_tokens
    server_args.override("ddtree.tier", speculative_num_draft_tokens=width)
    try:
        yield
    finally:
        server_args.override("ddtree.tier", speculative_num_draft_tokens=engine)


def decode_reserve() -> int:
    """KV slots that the scheduler's own estimate reserves past the committed length."""
    from sglang.srt.mem_cache.allocation_sizing import get_alloc_reserve_per_decode

    return get_alloc_reserve_per_decode()


def committed_len(req) -> int:
    """Tokens of a request whose KV is committed."""
    return int(req.kv.kv_committed_len if V23 else req.kv_committed_len)


def set_reserved(draft_input, lens, total: int) -> None:
    """Store the reserved lengths (int32 [b] on the host) where batch filtering and merging look for them."""
    if V23:
        draft_input.nxt_kv_lens_cpu, draft_input.nxt_kv_lens_sum = lens, total
    else:
        draft_input.reserved_seq_lens_cpu, draft_input.reserved_seq_lens_sum = lens, total


def get_reserved(draft_input):
    """The pair that `set_reserved` stored: (lens or None, total)."""
    if V23:
        return draft_input.nxt_kv_lens_cpu, draft_input.nxt_kv_lens_sum
    return draft_input.reserved_seq_lens_cpu, draft_input.reserved_seq_lens_sum


def sampled_tokens(sampler, probs, info, positions, simple: bool):
    """Token per row of `probs` [rows, V] by the engine's own sampler; int [rows]."""
    drawn = sampler._sample_from_probs(probs, info, positions, simple)
    return drawn[0] if V23 else drawn


class SlotPlan:
    """KV slots of one step as the forwards of this version want them."""

    def __init__(self, worker, batch, slots, reserved):
        """Args: `slots` int64 [b, max(W, D)], `reserved` int32 [b] on the host or None."""
        self.worker = worker
        if not V23:
            return
        translator = worker.model_runner.kv_index_translator
        lens_cpu = batch.seq_lens_cpu if batch.seq_lens_cpu is not None else reserved
        self.make = lambda part: translator.plan(
            req_pool_indices=batch.req_pool_indices,
            seq_lens=batch.seq_lens,
            seq_lens_cpu=lens_cpu,
            write_virtual=part.reshape(-1),
            read_extent=part.shape[1],
        )

    def draft_batch_fields(self, batch, tokens: int) -> dict:
        """Extra fields of the drafter's ForwardBatch."""
        if not V23:
            return {}
        return {
            "num_token_non_padded": None,
            "global_num_token_non_padded_cpu": tokens,
            "can_run_decode_cuda_graph": batch.can_run_decode_cuda_graph,
        }

    def bind_draft(self, forward_batch, slots, seq_lens, seq_lens_cpu) -> None:
        """Attach the plan of the drafter's block, slots int64 [b, D]."""
        if not V23:
            return
        translator = self.worker.draft_model_runner.kv_index_translator
        plan = self.make(slots)
        if self.worker.use_compact_draft_cache:
            plan = plan.reads_from(translator, seq_lens=seq_lens, seq_lens_cpu=seq_lens_cpu, read_extent=slots.shape[1])
        plan.bind(forward_batch, translator)

    def verify_fields(self, slots) -> dict:
        """Extra fields of the verify input, slots int64 [b, W]."""
        return {"kv_loc_plan": self.make(slots)} if V23 else {}


def fill_compact_seq_lens(worker, batch, draft_input, draft_prefix_lens, out) -> None:
    """Host bound of the drafter's windowed lengths, into int32 `out` [b]."""
    lens, _ = get_reserved(draft_input)
    if V23:
        worker._fill_compact_seq_lens_cpu_bound(batch_seq_lens_cpu=batch.seq_lens_cpu, nxt_kv_lens_cpu=lens, out=out)
        return
    worker._fill_compact_seq_lens_cpu_bound(
        batch_seq_lens_cpu=batch.seq_lens_cpu,
        reserved_seq_lens_cpu=lens,
        draft_prefix_lens=draft_prefix_lens,
        out=out,
    )


def init_new_fields(verify_input) -> dict:
    """Extra arguments of `ForwardBatch.init_new` for a verify pass."""
    return {"kv_loc_plan": verify_input.kv_loc_plan, "write_cols": verify_input.kv_loc_cols} if V23 else {}


# Buffers of a Triton backend that every step fills anew, so that one set serves every width.
STEP_BUFFERS = (
    ("_verify_mask", "cuda_graph_kv_indices", "cuda_graph_attn_logits", "cuda_graph_attn_lse")
    if V23
    else ("cuda_graph_custom_mask", "cuda_graph_kv_indices", "cuda_graph_attn_logits", "cuda_graph_attn_lse")
)


def captured_mask(backend):
    """The Triton backend's mask that its captured verify graphs read; uint8 or bool, flat."""
    return backend.verify_mask.buffer if V23 else backend.cuda_graph_custom_mask


def graph_config(runner):
    """What is captured in CUDA graphs, None where that is not decided."""
    if V23:
        from sglang.srt.runtime_context import get_exec

        return get_exec().graph.cuda_graph_config
    return runner.server_args.cuda_graph_config


def largest_batch(runner) -> int:
    """Requests of the largest decode batch, running or padded to a captured size."""
    captured = graph_config(runner)
    sizes = (captured.decode.bs or []) if captured is not None else []
    return max([runner.req_to_token_pool.size, *sizes])


def result_fields(target_out) -> dict:
    """Outputs of the target that this version's result carries on."""
    if not V23:
        return {}
    return {
        "routed_experts_output": target_out.routed_experts_output,
        "indexer_topk_output": target_out.indexer_topk_output,
    }


def accepted_logprobs(batch, logits_output, chosen, nodes) -> None:
    """Store the log-probabilities of the accepted tokens where the scheduler looks for them.

    Args:
        chosen: int64 [b * W], the target's choice after each node.
        nodes: int64 [b, D], row in the logits [b * W, V] of each accepted node.
    """
    from sglang.srt.layers import logprob_processor

    if V23:
        logprob_processor.compute_spec_logprobs(batch, logits_output, chosen, accept_index=nodes)
    else:
        logprob_processor.compute_spec_v2_logprobs(batch, logits_output, chosen, nodes, nodes.shape[1] - 1)
