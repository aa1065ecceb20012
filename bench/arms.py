"""The arms of a comparison: what each server runs, and the command that starts it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from bench.errors import BenchError

FORMS = "ar, chain, tree:BUDGET:TOPK, each with :eager behind it to run without CUDA graphs"
_ARM = re.compile(r"(?P<kind>ar|chain|tree:(?P<budget>\d+):(?P<top_k>\d+))(?P<eager>:eager)?")

# The KV pool is capped in tokens: a fraction alone would be of what the other servers leave at that moment.
# Prefill is no part of a decode step, and its graphs take a minute to compile.
GPU_FLAGS = [
    *("--attention-backend", "triton", "--sampling-backend", "pytorch", "--grammar-backend", "none"),
    *("--mem-fraction-static", "0.9", "--disable-prefill-cuda-graph"),
]
CPU_FLAGS = [
    *("--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch"),
    *("--mem-fraction-static", "0.3", "--disable-cuda-graph"),
]
RESERVE_TOKENS = 512  # of a request in the KV pool, beside its answer: prompt, and two steps of the widest tree


@dataclass(frozen=True)
class Arm:
    """One way to decode. budget and top_k are None except for a tree."""

    name: str
    kind: str
    budget: int | None = None
    top_k: int | None = None
    eager: bool = False

    @property
    def speculative(self) -> bool:
        return self.kind != "ar"


@dataclass(frozen=True)
class Setup:
    """What all arms have in common. `block_size` is the drafter's, `extra` are more flags for every server."""

    target: str
    drafter: str
    device: str
    block_size: int
    max_concurrency: int
    max_new_tokens: int
    extra: tuple[str, ...] = ()

    @property
    def dtype(self) -> str:
        return "float32" if self.device == "cpu" else "bfloat16"


@dataclass(frozen=True)
class Launch:
    """Flags and environment of one arm's server, and what the reader of its figures must know."""

    flags: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    note: str | None = None


def parse_arms(text: str) -> list[Arm]:
    """The arms named in a comma-separated list. Raises BenchError naming the one that is wrong."""
    arms = [_parse(part.strip()) for part in text.split(",")]
    names = [arm.name for arm in arms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise BenchError(f"--arms names {twice} twice: name each arm once")
    return arms


def _parse(text: str) -> Arm:
    match = _ARM.fullmatch(text)
    if not match:
        raise BenchError(f"--arms has {text!r}, which is no arm: use {FORMS}")
    if match["budget"] is None:
        return Arm(text, match["kind"], eager=bool(match["eager"]))
    budget, top_k = int(match["budget"]), int(match["top_k"])
    if not (budget and top_k):
        raise BenchError(f"--arms has {text!r}: a tree has a budget of at least 1 and a top-k of at least 1")
    return Arm(text, "tree", budget, top_k, bool(match["eager"]))


def launch(arm: Arm, setup: Setup) -> Launch:
    """How to start the server of an arm."""
    tokens = setup.max_concurrency * (setup.max_new_tokens + RESERVE_TOKENS)
    flags = [*(CPU_FLAGS if setup.device == "cpu" else GPU_FLAGS), "--dtype", setup.dtype]
    flags += ["--model-path", setup.target, "--context-length", "4096", "--max-total-tokens", str(tokens)]
    flags += ["--max-running-requests", str(setup.max_concurrency), "--enable-metrics", "--sleep-on-idle"]
    if setup.device != "cpu":
        flags += ["--disable-cuda-graph"] if arm.eager else ["--cuda-graph-max-bs", str(setup.max_concurrency)]
    algorithm, environment, note = _speculation(arm, setup)
    return Launch([*flags, *algorithm, *setup.extra], environment, note)


def _speculation(arm: Arm, setup: Setup) -> tuple[list[str], dict[str, str], str | None]:
    """Flags, environment and note of an arm's algorithm."""
    drafter = ["--speculative-draft-model-path", setup.drafter]
    if arm.kind == "ar":
        return [], {}, None
    if arm.kind == "chain" and setup.device != "cpu":
        backend = ["--speculative-draft-attention-backend", "triton"]
        return ["--speculative-algorithm", "DFLASH", *drafter, *backend], {}, None
    budget, top_k, note = arm.budget, arm.top_k, None
    if arm.kind == "chain":
        budget, top_k = setup.block_size - 1, 1
        note = f"DFLASH does not run on a CPU: this chain is DDTREE's tree {budget}:1, one candidate per depth"
    shape = {"SGLANG_DDTREE_BUDGET": str(budget), "SGLANG_DDTREE_TOPK": str(top_k)}
    return ["--speculative-algorithm", "DDTREE", *drafter], shape, note
