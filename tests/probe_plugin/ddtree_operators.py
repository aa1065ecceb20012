"""Operators of the engine that the probe plugin replaces, so that float32 runs on a GPU and MLA on a CPU."""

FLOAT32_TILE = 16  # rows and columns, the least that a dot product takes


def use_native_operators(experts: bool) -> None:
    """`experts` for a target with routed experts: their module is large, and others do without it."""
    from sglang.kernels.ops.attention import extend_attention
    from sglang.srt.layers.utils.multi_platform import MultiPlatformOp

    MultiPlatformOp.dispatch_forward = lambda operator: operator.forward_native
    if experts:
        _use_native_experts()
    served_tiles = extend_attention._get_block_sizes_for_extend_attention

    def small_tiles(q_dim, v_dim):
        *dims, _, _, warps = served_tiles(q_dim, v_dim)
        return (*dims, FLOAT32_TILE, FLOAT32_TILE, warps)

    extend_attention._get_block_sizes_for_extend_attention = small_tiles


def _use_native_experts() -> None:
    """Experts and their router without kernels that know half precision only, and without waiting for the GPU."""
    from sglang.srt.layers.moe.fused_moe_native import fused_moe_forward_native
    from sglang.srt.layers.quantization.unquant import UnquantizedFusedMoEMethod
    from sglang.srt.models.deepseek_v2 import MoEGate
    from torch.nn.functional import linear

    def forward(method, layer, dispatch_output):
        return fused_moe_forward_native(layer, dispatch_output)

    UnquantizedFusedMoEMethod.forward_native = forward
    MoEGate.forward = lambda gate, hidden, *_, **__: linear(hidden, gate.weight)


def prefill_in_latent_space() -> None:
    from sglang.srt.models.deepseek_common import attention_backend_handler as handler

    absorbed = handler.AttnForwardMethod.MLA
    handler.AttentionBackendRegistry.register("torch_native", lambda attention, batch: absorbed)
