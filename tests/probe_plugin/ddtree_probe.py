"""Test-only SGLang plugin that looks into the tree engine, or breaks it on purpose.

Found by SGLang when this folder is on PYTHONPATH (the `dist-info` beside this file names the entry point), and
without effect unless DDTREE_PROBE names a mode:

* ``draft_kv:FILE``         after each step of a single request, save what the drafter's KV pool holds for it
* ``draft_reads:FILE``      after each step, save the longest context and the most of it that the drafter attended to
* ``oracle:FILE``           propose the known answers' tokens at random ranks (see `ddtree_oracle`)
* ``width_bug:checked``     let the target's attention run at the drafter's width D instead of W
* ``width_bug:unchecked``   the same, with the check at start switched off
* ``trees:FOLDER``          each rank appends every step's trees and choices to FOLDER/rank-N.jsonl, and draws with
                            random numbers of its own
* ``sync_error``            a call that waits for the GPU inside a decode step raises (CUDA only)

DDTREE_NATIVE_OPS=1 (or `experts`, for a target that has some) makes float32 usable on a GPU: plain torch operators, as
sgl_kernel's know no float32, and small tiles in the extend kernel, whose IEEE dot products spill registers at the tiles
that half precision wants.
DDTREE_LATENT_PREFILL=1 lets an MLA target prefill in its latent space as it decodes: the torch_native backend of a CPU
cannot prefill it in the way that SGLang chooses. It goes for a server without speculation as well.
"""

import logging
import os

logger = logging.getLogger("ddtree_probe")

ENV = "DDTREE_PROBE"
ENV_NATIVE = "DDTREE_NATIVE_OPS"
ENV_LATENT = "DDTREE_LATENT_PREFILL"
WARM_UP_STEPS = 5
TRACED_STEPS = 30
TRACED_RANGE = "ddtree decode step"


def load() -> None:
    """Install the mode of DDTREE_PROBE, in the process that runs the tree's worker and only there.

    Raises:
        SystemExit: the mode is unknown.
    """
    if os.environ.get(ENV_NATIVE):
        from ddtree_operators import use_native_operators

        use_native_operators(experts=os.environ[ENV_NATIVE] == "experts")
    if os.environ.get(ENV_LATENT):
        from ddtree_operators import prefill_in_latent_space

        prefill_in_latent_space()
    name, _, argument = os.environ.get(ENV, "").partition(":")
    if not name:
        return
    if name not in MODES:
        raise SystemExit(f"{ENV}={name} is not a mode of the probe: use one of {', '.join(MODES)}")
    _when_worker_is_made(lambda: MODES[name](argument))


def _when_worker_is_made(install) -> None:
    # The plugin installs its own hooks when the scheduler asks for the worker's class: its modules are imported
    # by then, and neither the KV pools nor the attention backends exist yet.
    from sglang_ddtree import hooks

    original = hooks.install

    def install_both(device):
        original(device)
        install()
        logger.info("DDTREE probe: %s", os.environ[ENV])

    hooks.install = install_both


def draft_kv(path: str) -> None:
    """Save, by an atomic rename: committed tokens, and K and V [committed, KV heads, head dim] by layer."""
    import torch
    from sglang_ddtree.worker import DDTreeWorker

    decode = DDTreeWorker._decode

    def decode_and_save(worker, batch, on_publish):
        rows = batch.req_pool_indices
        result = decode(worker, batch, on_publish)
        if rows.numel() != 1 or worker.backlog.slots:
            return result  # of several requests, or written later
        committed = int(result.new_seq_lens[0])
        slots = worker.model_runner.req_to_token_pool.req_to_token[rows[0], :committed].long()
        pool = worker.draft_model_runner.token_to_kv_pool
        rows_of = {"keys": pool.k_buffer, "values": pool.v_buffer}
        saved = {name: [buffer[slots].cpu() for buffer in buffers] for name, buffers in rows_of.items()}
        torch.save({"committed": committed, **saved}, path + ".partial")
        os.replace(path + ".partial", path)
        return result

    DDTreeWorker._decode = decode_and_save


def draft_reads(path: str) -> None:
    """Save {"context": tokens, "read": tokens}, the largest of all steps so far, by an atomic rename."""
    import json

    from sglang_ddtree.worker import DDTreeWorker

    draft_lens, longest = DDTreeWorker._draft_lens, {"context": 0, "read": 0}

    def draft_lens_noted(worker, batch, slots):
        lens, bound = draft_lens(worker, batch, slots)
        for name, tensor in (("context", batch.seq_lens), ("read", lens)):
            longest[name] = max(longest[name], int(tensor.max()))
        with open(path + ".partial", "w") as file:
            json.dump(longest, file)
        os.replace(path + ".partial", path)
        return lens, bound

    DDTreeWorker._draft_lens = draft_lens_noted


def oracle(path: str) -> None:
    """Grow the trees from the proposals of `ddtree_oracle`; the drafter runs, and its own proposals are dropped."""
    from ddtree_oracle import Oracle
    from sglang_ddtree import ops
    from sglang_ddtree.worker import DDTreeWorker

    propose, tables = DDTreeWorker._propose, []

    def propose_known(worker, batch, tier, block_slots, plan):
        _, drafted_in_graph = propose(worker, batch, tier, block_slots, plan)
        if not tables:
            tables.append(Oracle(path, worker.settings.depth, worker.device))
        prompts = [req.origin_input_ids for req in batch.reqs]
        log_probs, token_ids = tables[0].proposals(prompts, batch.seq_lens.long())
        roots = batch.spec_info.bonus_tokens.long().contiguous()
        return ops.build_tree(log_probs, token_ids, roots, worker.settings.budget), drafted_in_graph

    DDTreeWorker._propose = propose_known
    # The tree is not the drafter's, so it cannot be part of its graph.
    DDTreeWorker._maybe_build_draft_sampler = lambda worker: None


def width_bug(variant: str) -> None:
    """The target's attention metadata and mask are laid out for D nodes while W are verified."""
    if variant not in ("checked", "unchecked"):
        raise SystemExit(f"{ENV}=width_bug needs the variant checked or unchecked, not {variant!r}")
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang_ddtree import compat, selfcheck

    make_backends = ModelRunner.init_attention_backends

    def make_backends_of_width_d(runner):
        make_backends(runner)
        if not runner.is_draft_worker:
            runner.attn_backend.num_draft_tokens = compat.engine_block_size()

    ModelRunner.init_attention_backends = make_backends_of_width_d
    _lay_out_torch_masks_for_d()
    if variant == "unchecked":
        selfcheck.check_widths = lambda worker: None


def _lay_out_torch_masks_for_d() -> None:
    """The bug for the torch_native backend, which reads a mask per request instead of a flat one."""
    from sglang_ddtree import attention, compat

    verify = attention.verify_attention

    def verify_with_rows_of_d(q, k_cache, v_cache, rows, prefix_lens, block_slots, ancestors, causal, scaling):
        if ancestors is not None:
            requests, width = ancestors.shape[:2]
            # Row i starts where it would if the rows before it had D entries.
            strides = (width * width, min(compat.engine_block_size(), width), 1)
            ancestors = ancestors.contiguous().as_strided((requests, width, width), strides)
        return verify(q, k_cache, v_cache, rows, prefix_lens, block_slots, ancestors, causal, scaling)

    attention.verify_attention = verify_with_rows_of_d


def sync_error(_: str) -> None:
    """After some steps, which compile kernels, raise at any call that waits for the GPU."""
    import torch
    from sglang_ddtree.worker import DDTreeWorker

    decode, steps = DDTreeWorker._decode, 0

    def decode_without_waiting(worker, batch, on_publish):
        nonlocal steps
        steps += 1
        if steps <= WARM_UP_STEPS:
            return decode(worker, batch, on_publish)
        if steps == WARM_UP_STEPS + 1:
            logger.info("DDTREE probe: sync_error armed")
        torch.cuda.set_sync_debug_mode("error")
        try:
            return decode(worker, batch, on_publish)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    DDTreeWorker._decode = decode_without_waiting


def trace(path: str) -> None:
    """Profile TRACED_STEPS steps after the warm-up and write the trace in Chrome's format, by an atomic rename."""
    import torch
    from sglang_ddtree.worker import DDTreeWorker

    decode, profiler, steps = DDTreeWorker._decode, torch.profiler.profile(), 0

    def decode_traced(worker, batch, on_publish):
        nonlocal steps
        steps += 1
        if steps == WARM_UP_STEPS:
            profiler.start()
        if steps == WARM_UP_STEPS + TRACED_STEPS:
            profiler.stop()
            profiler.export_chrome_trace(path + ".partial")
            os.replace(path + ".partial", path)
        with torch.profiler.record_function(TRACED_RANGE):
            return decode(worker, batch, on_publish)

    DDTreeWorker._decode = decode_traced


def trees(folder: str) -> None:
    """A line per step: tokens [b, W] and parents [b, W] of the trees, and what the target chose [b, W]."""
    import json

    import torch
    from sglang.srt.distributed import get_tp_group
    from sglang_ddtree import ops, worker

    accept, choose = ops.accept, worker.choose_tokens
    seeded = False

    def choose_with_own_numbers(*args):
        nonlocal seeded
        if not seeded:
            torch.manual_seed(get_tp_group().rank_in_group)
            seeded = True
        return choose(*args)

    def accept_and_write(tree, chosen, *rest):
        line = [part.tolist() for part in (tree.token, tree.parent, chosen)]
        with open(f"{folder}/rank-{get_tp_group().rank_in_group}.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")
        return accept(tree, chosen, *rest)

    worker.choose_tokens, ops.accept = choose_with_own_numbers, accept_and_write


def sibling_leak(_: str) -> None:
    """Set the entry left of the diagonal in every ancestor row."""
    from sglang_ddtree import ops

    finalize = ops.finalize

    def finalize_with_leak(tree, seq_lens, out=None):
        positions, ancestors = finalize(tree, seq_lens, out)
        ancestors.diagonal(-1, 1, 2).fill_(True)
        return positions, ancestors

    ops.finalize = finalize_with_leak


def greedy_sampling(_: str) -> None:
    """Choose by argmax whatever the request asks for."""
    from sglang_ddtree import worker

    worker.choose_tokens = lambda sampler, logits, info, positions: logits.argmax(-1).view_as(positions)


def slots_off_by_one(_: str) -> None:
    """Gather the slots of the positions one after those that the step fills."""
    from sglang_ddtree.worker import DDTreeWorker

    gather = DDTreeWorker._gather_slots
    DDTreeWorker._gather_slots = lambda worker, batch: gather(worker, batch).roll(-1, dims=1)


MODES = {
    "draft_kv": draft_kv,
    "draft_reads": draft_reads,
    "oracle": oracle,
    "width_bug": width_bug,
    "sync_error": sync_error,
    "trees": trees,
    "sibling_leak": sibling_leak,
    "greedy_sampling": greedy_sampling,
    "slots_off_by_one": slots_off_by_one,
    "trace": trace,
}
