"""What the target runs each tier with: an attention backend of the tier's width, and its CUDA graphs."""

import contextlib
import functools
import logging
from dataclasses import dataclass

import torch

from sglang_ddtree import compat
from sglang_ddtree.selfcheck import StartRefused
from sglang_ddtree.tiers import AR, ENV_TIERS, Tier, remarks

logger = logging.getLogger(__name__)


@dataclass
class Engine:
    """A tier's attention backend and graph runner, the latter None where nothing is captured."""

    tier: Tier
    backend: object
    graphs: object | None = None


class TierEngines:
    """Chooses the tier of a step and puts its engine in place of the target's for one pass.

    Everything is built at start, for the widest steps first: buffers that every step fills anew are shared, and graphs
    of narrower steps find their memory in the pool of the wider ones.
    """

    def __init__(self, runner, settings):
        """Args: `runner` the target's model runner. Without a table it keeps the engine that it has."""
        self.runner, self.settings = runner, settings
        self.by_name = {tier.name: Engine(tier, runner.attn_backend) for tier in settings.tiers()}
        if settings.table is None:
            (single,) = self.by_name.values()
            single.graphs = runner.decode_cuda_graph_runner
            return
        if AR in self.by_name and runner.model_config.model_is_mrope:
            # A plain step would take such positions from the host, which only knows a bound of them.
            raise StartRefused(f'{ENV_TIERS} ends in "ar", which a target with 3D rope positions lacks: use "chain"')
        device = torch.cuda.get_device_name() if runner.device == "cuda" else None
        for remark in remarks(settings.table, device):
            logger.warning("%s", remark)
        shared: dict[str, object] = {}
        for engine in sorted(self.by_name.values(), key=lambda engine: -engine.tier.shape.width):
            self._build(engine, shared)

    def _build(self, engine: Engine, shared: dict) -> None:
        runner, tier = self.runner, engine.tier
        if not hasattr(runner.attn_backend, "num_draft_tokens"):
            # torch_native takes its widths from each step.
            return
        with compat.target_width(runner.server_args, tier.shape.width):
            engine.backend = runner._get_attention_backend(init_new_workspace=True)
            if graphs_enabled(runner):
                from sglang_ddtree import tier_graphs

                _share_buffers(engine.backend, shared)
                engine.graphs = tier_graphs.capture(runner, tier, engine.backend, self._serves(tier))

    def _serves(self, tier: Tier):
        return lambda requests: self.choose(requests) is tier

    def choose(self, requests: int) -> Tier:
        """The tier of a batch."""
        table = self.settings.table
        return self.by_name[str(table.name(requests) if table else self.settings.budget)].tier

    @contextlib.contextmanager
    def active(self, tier: Tier):
        """Launch the target's pass with the engine of a tier; prefills keep the one that they were captured with."""
        runner, engine = self.runner, self.by_name[tier.name]
        kept = runner.attn_backend, runner.decode_cuda_graph_runner
        runner.attn_backend, runner.decode_cuda_graph_runner = engine.backend, engine.graphs
        try:
            yield
        finally:
            runner.attn_backend, runner.decode_cuda_graph_runner = kept

    @property
    def captured(self) -> bool:
        """Whether steps run in CUDA graphs."""
        return any(hasattr(engine.graphs, "captured_req_width") for engine in self.by_name.values())

    @property
    def recaptures(self) -> int:
        """How often tiers' graphs were captured after the start: 0 unless a step asks for what they do not give."""
        return sum(getattr(engine.graphs, "captures", 1) - 1 for engine in self.by_name.values())


def graphs_enabled(runner) -> bool:
    """Whether the target's decode steps are to be captured."""
    from sglang.srt.model_executor.cuda_graph_config import Backend

    return runner.device != "cpu" and compat.graph_config(runner).decode.backend != Backend.DISABLED


def leave_capture_to_tiers(target_worker) -> None:
    """Let the scheduler's call capture no decode graphs of the target: each tier has its own."""
    target_worker.init_cuda_graphs = functools.partial(target_worker.init_cuda_graphs, capture_decode_cuda_graph=False)


def _share_buffers(backend, shared: dict) -> None:
    """Give a backend the largest buffers allocated so far, in place of its own of the same name."""
    allocate = backend.init_cuda_graph_state

    def allocate_shared(*args, **kwargs):
        allocate(*args, **kwargs)
        for name in compat.STEP_BUFFERS:
            mine = getattr(backend, name)
            if name in shared and _cells(shared[name]) >= _cells(mine):
                setattr(backend, name, shared[name])
            else:
                shared[name] = mine

    backend.init_cuda_graph_state = allocate_shared


def _cells(buffer) -> int:
    # 0.5.23 keeps the mask in a record.
    return getattr(buffer, "buffer", buffer).numel()
