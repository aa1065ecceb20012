"""What the engine tells about itself in its log and in `/server_info`, beyond SGLang's own arguments."""

from sglang_ddtree import selfcheck


def get_internal_state(original, scheduler, request):
    """AROUND hook of `Scheduler.get_internal_state`: adds the tree's shape and the patch series in use."""
    output = original(scheduler, request)
    worker = scheduler.draft_worker
    shape = worker.settings
    output.internal_state.update(
        ddtree_budget=shape.budget,
        ddtree_top_k=shape.top_k,
        ddtree_block_size=shape.block_size,
        ddtree_patches=selfcheck.installed_series(),
        ddtree_tiers=worker.counters.by_tier,
        ddtree_recaptures=worker.tiers.recaptures,
    )
    return output


def describe(worker) -> str:
    """One line that states the resolved engine."""
    shape, args = worker.settings, worker.server_args
    graphs = "on" if worker.graphs else "off"
    tiers = f" tiers={shape.table}" if shape.table else ""
    return (
        f"DDTREE engine: budget={shape.budget} top_k={shape.top_k} block_size={shape.block_size} "
        f"width={shape.width}{tiers} target_backend={type(worker.model_runner.attn_backend).__name__} "
        f"draft_backend={type(worker.draft_model_runner.attn_backend).__name__} cuda_graphs={graphs} "
        f"page_size={args.page_size} draft_window={shape.draft_window or 'all'} tp={args.tp_size} "
        f"patches={selfcheck.installed_series()}"
    )
