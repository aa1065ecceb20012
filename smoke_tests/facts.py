"""What the server says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .client import Server

# The scheduler answers between two steps, so a long prefill may hold it up.
TIMEOUT_S = 60


@dataclass(frozen=True)
class Facts:
    """One server's settings as far as the probes depend on them.

    algorithm: upper-case name, None for a server without speculation (AR).
    budget: tree nodes without the root, that is the verified width less one; None on AR.
    top_k: candidates per depth; None where the server does not publish it.
    block_size: the drafter's block size, root included; None where unknown.
    max_running_requests: how many requests the server runs at once, over all its replicas.
    log_interval: decode steps between two updates of the server's gauges.
    replicas: data-parallel copies, each with gauges of its own.
    dtype: what the weights are served in, "auto" where the server was left the choice.
    """

    version: str
    model_path: str
    algorithm: str | None
    budget: int | None
    top_k: int | None
    block_size: int | None
    max_running_requests: int
    log_interval: int
    replicas: int
    dtype: str

    @property
    def kind(self) -> str:
        """tree, chain, ar, or the algorithm's own name for any other."""
        if self.algorithm is None:
            return "ar"
        if self.algorithm == "DFLASH":
            return "chain"
        if self.algorithm == "DDTREE":
            # One candidate for each depth is a chain.
            return "chain" if self.top_k == 1 else "tree"
        return self.algorithm


def read(server: Server) -> Facts:
    """Raises NoAnswerError when the scheduler does not answer, as only it knows all of this."""
    return from_info(server.get("/server_info", timeout=TIMEOUT_S))


def from_info(info: dict[str, Any]) -> Facts:
    """Facts from the decoded reply of `/server_info`."""
    state = (info.get("internal_states") or [{}])[0]
    algorithm = info.get("speculative_algorithm")
    width = info.get("speculative_num_draft_tokens") if algorithm else None
    replicas = info.get("dp_size") or 1
    per_replica = state.get("effective_max_running_requests_per_dp")
    return Facts(
        version=info.get("version", "unknown"),
        model_path=info["model_path"],
        algorithm=algorithm.upper() if algorithm else None,
        budget=width - 1 if width else None,
        top_k=_top_k(info, state) if algorithm else None,
        block_size=info.get("speculative_dflash_block_size") if algorithm else None,
        max_running_requests=per_replica * replicas if per_replica else info.get("max_running_requests") or 1,
        log_interval=info.get("decode_log_interval") or 40,
        replicas=replicas,
        dtype=info.get("dtype") or "auto",
    )


def _top_k(info: dict[str, Any], state: dict[str, Any]) -> int | None:
    # SGLang's own `speculative_eagle_topk` is 1 for every algorithm of the DFlash family, so it says nothing.
    return state.get("ddtree_top_k", info.get("ddtree_top_k"))
