"""The cases of the engine matrix: which server, and what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass

#: Budget, block size: widths below, equal to and above the block size.
WIDTHS = ((3, 8), (7, 8), (8, 8), (15, 8), (16, 8), (31, 8), (63, 16), (5, 16))
ACCEPT_BUDGETS = (3, 7, 8, 15, 16, 31)
CHAIN = (7, 1, 8)
#: Context length of the case that generates up to it.
LIMIT = 256
WINDOW = ("--speculative-draft-window-size", "32")
FEW = 6
ALL = 20


@dataclass(frozen=True)
class Case:
    """One server and its workloads.

    budget: nodes without the root; None is a server without speculation.
    singles: prompts that are also run one at a time, at batch 1.
    workloads: functions of `engine_workloads`, run in this order.
    refusal: words of the line with which the start must be refused; no workload runs then.
    tp: tensor-parallel ranks, each on a GPU of its own.
    tiers: first batch size and tier of each row of an adaptive server's table; its largest tree is `budget`.
    probe: mode of the test-only plugin `tests/probe_plugin`, empty for none; {folder} is the server's own.
    """

    name: str
    budget: int | None = None
    block_size: int = 8
    top_k: int = 4
    dtype: str = "float32"
    graphs: bool = True
    flags: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    singles: int = FEW
    workloads: tuple[str, ...] = ("batches", "churn")
    refusal: str = ""
    probe: str = ""
    tp: int = 1
    tiers: tuple[tuple[int, int | str], ...] = ()

    @property
    def shape(self) -> str:
        """Key of the shape in the simulation's file."""
        return f"{self.budget}/{self.top_k}/{self.block_size}"


def reference(dtype: str) -> Case:
    """The server without speculation whose greedy tokens are the truth for `dtype`."""
    return Case(f"ar-{dtype}", dtype=dtype, workloads=("self_consistency",))


def _top_k(block_size: int, budget: int) -> int:
    return 8 if (budget, block_size) == (63, 16) else 4


def _widths(**fields) -> list[Case]:
    return [Case(f"B{b}-D{d}", b, d, _top_k(d, b), **fields) for b, d in WIDTHS]


def _modes() -> list[Case]:
    return [
        Case("overlap-off-B8", 8, flags=("--disable-overlap-schedule",)),
        Case("overlap-off-B15", 15, flags=("--disable-overlap-schedule",), workloads=("batches", "churn", "repeat")),
        Case("page-16", 15, flags=("--page-size", "16"), workloads=("batches", "churn", "repeat")),
        Case("page-64", 15, flags=("--page-size", "64"), workloads=("batches", "churn", "repeat")),
        Case("chunked-prefill", 15, flags=("--chunked-prefill-size", "32"), workloads=("batches", "churn", "repeat")),
        # The scheduler expects 16 more tokens of a request that will want 100, so it admits too many.
        Case(
            "retraction",
            15,
            flags=("--max-total-tokens", "1500"),
            env=(("SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION", "16"),),
            workloads=("retraction",),
        ),
        Case("context-limit", 31, flags=("--context-length", str(LIMIT)), workloads=("context_limit",)),
        Case("prefix-hits", 8, workloads=("repeat",)),
        # Contexts grow to many times this window.
        Case("draft-window", 15, flags=WINDOW, workloads=("batches", "churn", "repeat")),
        Case("draft-window-of-pages", 15, flags=(*WINDOW, "--page-size", "16")),
    ]


def _bf16() -> list[Case]:
    return [Case(f"bf16-B{b}", b, dtype="bfloat16", singles=ALL, workloads=("batches",)) for b in (8, 15)]


def _accept() -> list[Case]:
    """Chain, and trees of top-k 8; those of top-k 4 are measured by the group `widths`."""
    chain = Case("chain", *_shape(CHAIN), singles=ALL, workloads=("accept",))
    return [chain] + [Case(f"B{b}-K8", b, 8, 8, singles=ALL, workloads=("accept",)) for b in ACCEPT_BUDGETS]


def _shape(key: tuple[int, int, int]) -> tuple[int, int, int]:
    budget, top_k, block_size = key
    return budget, block_size, top_k


def _faults() -> list[Case]:
    refusal = "runs 8 tokens per request and must run 16"
    return [
        Case("width-bug-checked", 15, probe="width_bug:checked", refusal=refusal),
        Case("width-bug-unchecked", 15, probe="width_bug:unchecked", workloads=("diverges",)),
        Case("no-synchronisation", 15, probe="sync_error", workloads=("no_synchronisation",)),
    ]


def _inside() -> list[Case]:
    # Served types and kernels: float32 would run torch operators in place of sgl_kernel's.
    trace = Case("trace", 16, dtype="bfloat16", probe="trace:{folder}/trace.json", workloads=("steady_trace",))
    return [Case("draft-kv", 8, probe="draft_kv:{folder}/kv.pt", workloads=("draft_kv",)), trace]


def _ranks() -> list[Case]:
    """Two GPUs against one: the answers are compared with those of the server without speculation on one GPU."""
    own = {"tp": 2, "probe": "trees:{folder}", "singles": ALL, "workloads": ("batches", "churn", "same_trees")}
    # Each server may find the other GPU fuller than its own, as servers start at once.
    own["env"] = (("NCCL_NVLS_ENABLE", "0"), ("SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK", "0"))
    return [
        Case("tp2-B7", 7, **own),
        Case("tp2-B15", 15, **own),
        Case("tp2-B15-eager", 15, graphs=False, **own),
        Case("tp2-B15-nccl-all-reduce", 15, flags=("--disable-custom-all-reduce",), **own),
        Case("tp2-chain", *_shape(CHAIN), **own),
    ]


def _adaptive() -> list[Case]:
    """Every kind of tier in one server, batch sizes that a tier shares with the padding of another among them."""
    every = ((1, 15), (2, 4), (3, "chain"), (5, "ar"), (11, 7))
    back, busy = ((1, "ar"), (3, 15)), ((1, 15), (2, "ar"))
    workloads = ("batches", "churn", "repeat", "tiers_used", "switches")
    eager = Case("adaptive-eager", 15, tiers=every, graphs=False, workloads=workloads[:-1])
    return [
        Case("adaptive", 15, tiers=every, workloads=workloads),
        # One request is decoded without speculation, so drafting resumes when others join it.
        Case("adaptive-back", 15, tiers=back, workloads=workloads),
        Case("adaptive-page-16", 15, tiers=every, flags=("--page-size", "16"), workloads=workloads),
        Case("adaptive-overlap-off", 15, tiers=every, flags=("--disable-overlap-schedule",), workloads=workloads),
        Case("adaptive-bf16", 15, tiers=every, dtype="bfloat16", singles=ALL, workloads=workloads),
        Case("adaptive-no-synchronisation", 15, tiers=every, probe="sync_error", workloads=("no_synchronisation",)),
        Case("ar-no-synchronisation", 15, tiers=back, probe="sync_error", workloads=("no_synchronisation",)),
        Case(
            "plain-draft-kv", 15, tiers=busy, probe="draft_kv:{folder}/kv.pt", workloads=("draft_kv_after_plain_steps",)
        ),
        eager,
    ]


GROUPS = {
    "widths": _widths(singles=ALL),
    "eager": _widths(graphs=False),
    "modes": _modes(),
    "bf16": _bf16(),
    "accept": _accept(),
    "faults": _faults(),
    "inside": _inside(),
    "ranks": _ranks(),
    "adaptive": _adaptive(),
}
#: Needs two GPUs and a pair whose heads two ranks can share, so it runs only when it is named.
NOT_BY_DEFAULT = ("ranks",)


def simulated_shapes() -> list[tuple[int, int, int]]:
    """Budget, top-k, block size of every shape whose accept length is compared with the simulation."""
    cases = [*GROUPS["widths"], *GROUPS["accept"]]
    return [(case.budget, case.top_k, case.block_size) for case in cases]
