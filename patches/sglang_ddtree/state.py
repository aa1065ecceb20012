"""What the engine tells about itself in `/server_info`, beyond SGLang's own arguments."""

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
