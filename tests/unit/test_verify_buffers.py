"""What the Triton backend allocates for its captured verify graphs grows with requests, not with verified nodes."""

from types import SimpleNamespace

import pytest

pytest.importorskip("sglang", reason="sglang is not installed: run the tests in the engine environment")
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend  # noqa: E402
from sglang_ddtree import compat  # noqa: E402

from scripts.kimi_on_paper import KIMI, graph_buffers  # noqa: E402


def allocated(requests: int, nodes: int, context: int, **changes) -> dict[str, int]:
    """Bytes of each buffer that the backend's own function allocates, on a device without memory."""
    backend = SimpleNamespace(
        device="meta",
        num_head=KIMI.heads // 8,
        max_kv_splits=KIMI.kv_splits,
        v_head_dim=KIMI.latent,
        swa_v_head_dim=None,
        max_context_len=context,
        num_draft_tokens=nodes,
        skip_prefill=False,
        is_draft_runner=False,
        sliding_window_size=None,
        verifies_in_graph=True,
        use_sliding_window_kv_pool=False,
        _translate_kv_loc=None,
        dllm_attention=None,
        lean_total_programs=1,
        lean_block_m=1,
    )
    vars(backend).update(changes)
    TritonAttnBackend.init_cuda_graph_state(backend, requests, requests * nodes)
    mask = None if backend.is_draft_runner else compat.captured_mask(masked(backend))
    buffers = {"scratch": backend.cuda_graph_attn_logits, "indices": backend.cuda_graph_kv_indices, "mask": mask}
    return {name: tensor.numel() * tensor.element_size() for name, tensor in buffers.items() if tensor is not None}


def masked(backend):
    return SimpleNamespace(verify_mask=backend._verify_mask) if compat.V23 else backend


@pytest.mark.parametrize("context", [131072, 262144])
@pytest.mark.parametrize(("requests", "nodes"), [(48, 65), (48, 16), (1, 33)])
def test_the_targets_buffers_are_those_on_paper(requests, nodes, context):
    assert allocated(requests, nodes, context) == graph_buffers(requests, nodes, context, ranks=8)


def test_sized_by_nodes_they_would_take_sixteen_gigabytes_more():
    by_requests = allocated(48, 65, 131072)
    by_nodes = allocated(48, 65, 131072, verifies_in_graph=False)
    assert by_nodes["scratch"] == 65 * by_requests["scratch"] > 13e9
    assert by_nodes["indices"] == 65 * by_requests["indices"] > 3e9
    assert by_nodes["mask"] == by_requests["mask"]


def test_the_drafters_indices_do_not_grow_with_its_block():
    sizes = [allocated(48, block, 262144, is_draft_runner=True, v_head_dim=128) for block in (8, 16)]
    assert sizes[0] == sizes[1]
