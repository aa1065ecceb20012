"""The arms of a comparison: what each server runs, and the command that starts it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bench.errors import BenchError

FORMS = (
    "ar, chain, tree:BUDGET:TOPK, adaptive:TABLE of bench.adaptive_table, each with options behind it: :block=SIZE, "
    ":window=TOKENS, :page=TOKENS, :eager to run without CUDA graphs"
)
_ARM = re.compile(
    r"(?P<kind>ar|chain|tree:(?P<budget>\d+):(?P<top_k>\d+)|adaptive:(?P<tiers>[\w./-]+))"
    r"(?P<options>(:eager|:\w+=\d+)*)"
)
_OPTIONS = {"block": "block_size", "window": "window", "page": "page_size"}

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
CONTEXT_TOKENS = 4096  # at least
RESERVE_TOKENS = 512  # of a request in the KV pool, beside its answer: prompt, and two steps of the widest tree


@dataclass(frozen=True)
class Arm:
    """One way to decode. budget and top_k are None except for a tree, tiers (a table's file) except for adaptive.

    block_size: the drafter's block, root included. window: tokens that the drafter looks back. page_size: tokens of a
    KV page. All three None for what the server takes by itself.
    """

    name: str
    kind: str
    budget: int | None = None
    top_k: int | None = None
    eager: bool = False
    block_size: int | None = None
    window: int | None = None
    page_size: int | None = None
    tiers: str | None = None

    @property
    def speculative(self) -> bool:
        return self.kind != "ar"


@dataclass(frozen=True)
class Setup:
    """What all arms have in common. `block_size` is the drafter's, `extra` are more flags for every server.

    prompt_tokens: of the longest prompt, 0 where RESERVE_TOKENS holds it.
    pool_tokens: of the KV pool, None for what `max_concurrency` requests need.
    """

    target: str
    drafter: str
    device: str
    block_size: int
    max_concurrency: int
    max_new_tokens: int
    extra: tuple[str, ...] = ()
    prompt_tokens: int = 0
    pool_tokens: int | None = None

    @property
    def request_tokens(self) -> int:
        """Of one request in the KV pool: prompt, answer, and the steps that are being verified."""
        return self.prompt_tokens + self.max_new_tokens + RESERVE_TOKENS

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


def engine_settings(arm: Arm) -> dict:
    """An instance's settings of the inventory; what the arm leaves to the server is left out."""
    named = {key: getattr(arm, key) for key in ("budget", "top_k", "block_size", "page_size")}
    named["draft_window"] = arm.window
    if arm.tiers:
        # An instance says its tiers itself: its host does not have the benchmarks' file.
        table = json.loads(Path(arm.tiers).read_text())
        named |= {"tiers": table["tiers"], "top_k": table.get("top_k")}
    algorithm = "tree" if arm.tiers else arm.kind
    return {"algorithm": algorithm} | {key: value for key, value in named.items() if value is not None}


def in_order(names: Iterable[str]) -> list[str]:
    """Names of arms as a table shows them: ar, chain, then trees by rising budget, then adaptive."""
    rank = {"ar": 0, "chain": 1, "tree": 2, "adaptive": 3}
    arms = [_parse(name) for name in set(names)]
    return [arm.name for arm in sorted(arms, key=lambda a: (rank[a.kind], a.budget or 0, a.top_k or 0, a.name))]


def _parse(text: str) -> Arm:
    match = _ARM.fullmatch(text)
    if not match:
        raise BenchError(f"--arms has {text!r}, which is no arm: use {FORMS}")
    options = _parse_options(text, match["options"])
    kind = match["kind"].partition(":")[0]
    if kind == "ar" and {"block_size", "window"} & set(options):
        raise BenchError(f"--arms has {text!r}, and ar has no drafter: leave block and window out")
    if kind != "tree":
        return Arm(text, kind, tiers=match["tiers"], **options)
    budget, top_k = int(match["budget"]), int(match["top_k"])
    if not (budget and top_k):
        raise BenchError(f"--arms has {text!r}: a tree has a budget of at least 1 and a top-k of at least 1")
    return Arm(text, kind, budget, top_k, **options)


def _parse_options(text: str, options: str) -> dict[str, int | bool]:
    """Fields of an Arm. Raises BenchError for an option that is unknown or named twice."""
    found: dict[str, int | bool] = {}
    for option in filter(None, options.split(":")):
        name, _, value = option.partition("=")
        field_name = "eager" if option == "eager" else _OPTIONS.get(name)
        if field_name is None or field_name in found or value == "0":
            raise BenchError(f"--arms has {text!r}, where {option!r} is unknown, zero or there twice: use {FORMS}")
        found[field_name] = int(value) if value else True
    return found


def launch(arm: Arm, setup: Setup) -> Launch:
    """How to start the server of an arm."""
    tokens = setup.pool_tokens or setup.max_concurrency * setup.request_tokens
    context = max(CONTEXT_TOKENS, setup.request_tokens)
    flags = [*(CPU_FLAGS if setup.device == "cpu" else GPU_FLAGS), "--dtype", setup.dtype]
    flags += ["--model-path", setup.target, "--context-length", str(context)]
    flags += ["--max-total-tokens", str(tokens)]
    flags += ["--max-running-requests", str(setup.max_concurrency), "--enable-metrics", "--sleep-on-idle"]
    if setup.device != "cpu":
        flags += ["--disable-cuda-graph"] if arm.eager else ["--cuda-graph-max-bs", str(setup.max_concurrency)]
    if arm.page_size:
        flags += ["--page-size", str(arm.page_size)]
    algorithm, environment, note = _speculation(arm, setup)
    return Launch([*flags, *algorithm, *setup.extra], environment, note)


def _speculation(arm: Arm, setup: Setup) -> tuple[list[str], dict[str, str], str | None]:
    """Flags, environment and note of an arm's algorithm."""
    drafter = ["--speculative-draft-model-path", setup.drafter]
    if arm.kind == "ar":
        return [], {}, None
    if arm.block_size:
        drafter += ["--speculative-dflash-block-size", str(arm.block_size)]
    if arm.window:
        drafter += ["--speculative-draft-window-size", str(arm.window)]
    if arm.kind == "chain" and setup.device != "cpu":
        backend = ["--speculative-draft-attention-backend", "triton"]
        return ["--speculative-algorithm", "DFLASH", *drafter, *backend], {}, None
    budget, top_k, note = arm.budget, arm.top_k, None
    if arm.kind == "chain":
        budget, top_k = (arm.block_size or setup.block_size) - 1, 1
        note = f"DFLASH does not run on a CPU: this chain is DDTREE's tree {budget}:1, one candidate per depth"
    shape = {"SGLANG_DDTREE_BUDGET": str(budget), "SGLANG_DDTREE_TOPK": str(top_k)}
    if arm.kind == "adaptive":
        shape = {"SGLANG_DDTREE_TIERS": str(Path(arm.tiers).resolve())}
    return ["--speculative-algorithm", "DDTREE", *drafter], shape, note
