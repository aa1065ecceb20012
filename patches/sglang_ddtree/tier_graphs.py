"""CUDA graphs of the target for one tier each; imported only where graphs are captured."""

from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardMode
from sglang.srt.model_executor.runner.base_cuda_graph_runner import get_batch_sizes_to_capture
from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner

from sglang_ddtree import compat
from sglang_ddtree.tiers import AR, CHAIN, needed_sizes


class TreeGraphs(DecodeCudaGraphRunner):
    """Verify passes with a mask. `captures` counts how often the whole set was captured: once, at start."""

    captures = 0

    def capture(self) -> None:
        self.captures += 1
        super().capture()


class ChainGraphs(TreeGraphs):
    """Verify passes that are causal, without a mask."""

    def get_spec_info(self, num_tokens: int):
        spec_info = super().get_spec_info(num_tokens)
        spec_info.custom_mask = None
        return spec_info


class PlainGraphs(TreeGraphs):
    """Decode passes over one token, as without speculation, which also give what the drafter needs."""

    # The constructor would set what every pass of a speculative algorithm is.
    capture_forward_mode = property(lambda self: ForwardMode.DECODE, lambda self, _: None)
    capture_hidden_mode = property(lambda self: CaptureHiddenMode.FULL, lambda self, _: None)

    def get_spec_info(self, num_tokens: int):
        return None


def capture(runner, tier, backend, serves) -> TreeGraphs | None:
    """Capture the passes of a tier for the batch sizes that it serves; None where it serves none that is captured.

    Args:
        runner: the target's model runner.
        serves: `serves(requests)` says whether a batch of so many is the tier's.
    """
    graphs = {CHAIN: ChainGraphs, AR: PlainGraphs}.get(tier.name, TreeGraphs)
    width, decode = tier.shape.width, compat.graph_config(runner).decode
    configured = decode.bs
    sizes = needed_sizes(get_batch_sizes_to_capture(runner, width)[0], serves)
    if not sizes:
        return None
    decode.bs = sizes
    try:
        return graphs(runner, attn_backend=backend, speculative_num_draft_tokens=width)
    finally:
        decode.bs = configured
