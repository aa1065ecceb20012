"""What the engine matrix asks of a running server, and when the answers are right.

Each workload takes a `Run`, returns what it measured, and appends a sentence to `run.faults` for each thing
that is not as it must be.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import requests

from tests.gpu.engine_cases import LIMIT, Case
from tests.gpu.engine_pair import TOKENS
from tests.gpu.engine_ranks import same_trees
from tests.gpu.engine_server import MatrixServer
from tests.gpu.engine_trace import summary
from tests.simulation import load_pair
from tests.simulation.draft_kv import KV_TOKENS, KV_TOLERANCE, compare_draft_kv

CONCURRENCIES = (4, 16)
#: Long enough for the case that generates up to the context limit.
REFERENCE_TOKENS = LIMIT - 30
ACCEPT_TOLERANCE = 0.01
#: Logits of 16 to 32 are 0.125 apart in bfloat16, and both of the two compared passes round.
NEAR_TIE = 0.5


@dataclass(frozen=True)
class Reference:
    """Greedy tokens without speculation by prompt, and the gap between the two best logits at each."""

    tokens: list[list[int]]
    gaps: list[list[float]]


@dataclass
class Run:
    """A case while it runs. `reference()` waits for the server without speculation."""

    case: Case
    server: MatrixServer
    prompts: list[list[int]]
    reference: Callable[[], Reference]
    simulated: dict | None
    faults: list[str] = field(default_factory=list)

    @property
    def on_gpu(self) -> bool:
        return self.server.engine.setup.device == "cuda"

    def ask_all(self, numbers: list[int], lengths: list[int], concurrency: int, **fields) -> list[dict]:
        """Replies to the prompts of these numbers, in their order."""
        with ThreadPoolExecutor(concurrency) as pool:
            return list(
                pool.map(lambda n, length: self.server.ask(self.prompts[n], length, **fields), numbers, lengths)
            )

    def divergences(self, numbers: list[int], replies: list[dict]) -> list[dict]:
        """Where answers first part from the reference."""
        reference = self.reference()
        found = [first_divergence(reference, n, reply["output_ids"]) for n, reply in zip(numbers, replies, strict=True)]
        return [each for each in found if each]

    def check_exact(self, what: str, numbers: list[int], lengths: list[int], replies: list[dict]) -> list[dict]:
        """Divergences, of which only near-ties in bfloat16 are right; every answer has its full length."""
        short = [n for n, length, r in zip(numbers, lengths, replies, strict=True) if len(r["output_ids"]) != length]
        if short:
            self.faults.append(f"{what}: prompts {short} have another length than asked for")
        parted = self.divergences(numbers, replies)
        allowed = NEAR_TIE if self.case.dtype == "bfloat16" else -1.0
        wrong = [each for each in parted if each["gap"] > allowed]
        if wrong:
            self.faults.append(f"{what}: {len(wrong)} answers part from those without speculation, first {wrong[0]}")
        return parted


def first_divergence(reference: Reference, number: int, tokens: list[int]) -> dict | None:
    """Prompt, index and tokens of the first difference, with the gap of the reference's two best logits there."""
    for index, (mine, known) in enumerate(zip(tokens, reference.tokens[number], strict=False)):
        if mine != known:
            gap = reference.gaps[number][index]
            return {"prompt": number, "token": index, "found": mine, "expected": known, "gap": gap}
    return None


def measure_reference(server: MatrixServer, prompts: list[list[int]]) -> Reference:
    """Ask a server without speculation, one prompt at a time."""
    tokens, gaps = [], []
    for ids in prompts:
        reply = server.ask(ids, REFERENCE_TOKENS, return_logprob=True, top_logprobs_num=2)
        pairs = reply["meta_info"]["output_top_logprobs"]
        tokens.append(reply["output_ids"])
        gaps.append([round(best[0] - second[0], 5) for best, second in pairs])
    return Reference(tokens, gaps)


def self_consistency(run: Run) -> dict:
    """The server without speculation against itself at batch 16, a yardstick for `batches`."""
    numbers = list(range(len(run.prompts)))
    lengths = [TOKENS] * len(numbers)
    parted = run.check_exact("batch 16", numbers, lengths, run.ask_all(numbers, lengths, 16))
    if run.simulated and run.case.dtype == "float32":
        known = run.simulated["answers"]
        other = [n for n in numbers if run.reference().tokens[n][:TOKENS] != known[n]]
        if other:
            run.faults.append(f"prompts {other} are answered otherwise than in the simulation's file")
    return {"answers": len(numbers), "divergences": parted}


def accept(run: Run) -> dict:
    """Batch 1, full length: exactness and the accept length."""
    numbers = list(range(min(run.case.singles, len(run.prompts))))
    lengths = [TOKENS] * len(numbers)
    replies = run.ask_all(numbers, lengths, 1)
    parted = run.check_exact("batch 1", numbers, lengths, replies)
    steps = sum(reply["meta_info"]["spec_verify_ct"] for reply in replies)
    result = {"answers": len(numbers), "divergences": parted, "steps": steps}
    result["accept_length"] = round(sum(lengths) / steps, 4)
    return {"1": result | _against_simulation(run, numbers, result["accept_length"])}


def _against_simulation(run: Run, numbers: list[int], found: float) -> dict:
    """Only the same prompts can be compared, and only in the simulation's own precision."""
    if not run.simulated or run.case.dtype != "float32" or len(numbers) != len(run.simulated["answers"]):
        return {}
    wanted = run.simulated["accept_length"][run.case.shape]
    if abs(found / wanted - 1) > ACCEPT_TOLERANCE:
        run.faults.append(f"accept length {found} is not the simulated {wanted}")
    return {"simulated": wanted, "ratio": round(found / wanted, 4)}


def batches(run: Run) -> dict:
    """Batch 1, 4 and 16; in the latter two the answers end at different lengths."""
    result = accept(run)
    numbers = list(range(len(run.prompts)))
    for concurrency in CONCURRENCIES:
        lengths = random.Random(f"{run.case.name}-{concurrency}").choices(range(40, TOKENS + 1), k=len(numbers))
        replies = run.ask_all(numbers, lengths, concurrency)
        parted = run.check_exact(f"batch {concurrency}", numbers, lengths, replies)
        result[str(concurrency)] = {"answers": len(numbers), "divergences": parted}
    return result


def churn(run: Run) -> dict:
    """Requests come, finish and hang up in mid-stream while others run."""
    rng = random.Random(run.case.name)
    numbers = rng.sample(range(len(run.prompts)), len(run.prompts))
    lengths = rng.choices(range(5, TOKENS + 1), k=len(numbers))

    def one(index: int) -> dict:
        if index % 3 == 2:
            run.server.hang_up_midway(run.prompts[numbers[index]])
        return run.server.ask(run.prompts[numbers[index]], lengths[index])

    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(one, range(len(numbers))))
    parted = run.check_exact("churn", numbers, lengths, replies)
    return {"answers": len(numbers), "aborted": len(numbers) // 3, "divergences": parted}


def repeat(run: Run) -> dict:
    """The same prompts twice: the second time their prefix is taken from slots that the first round moved."""
    numbers = list(range(len(run.prompts)))
    lengths = [TOKENS] * len(numbers)
    parted, cached = [], 0
    for _ in range(2):
        replies = run.ask_all(numbers, lengths, 4)
        parted += run.check_exact("repeat", numbers, lengths, replies)
        cached = sum(reply["meta_info"]["cached_tokens"] for reply in replies)
    if not cached:
        run.faults.append("repeat: no prefix was found in the cache")
    return {"answers": 2 * len(numbers), "cached_tokens": cached, "divergences": parted}


def retraction(run: Run) -> dict:
    """More requests at once than the KV pool holds: some are taken back and run again."""
    numbers = list(range(len(run.prompts)))
    lengths = [TOKENS] * len(numbers)
    replies = run.ask_all(numbers, lengths, 16)
    count = sum(reply["meta_info"]["num_retractions"] for reply in replies)
    if not count:
        run.faults.append("retraction: none happened, the pool is too large")
    parted = run.check_exact("retraction", numbers, lengths, replies)
    return {"answers": len(numbers), "retractions": count, "divergences": parted}


def context_limit(run: Run) -> dict:
    """Every request generates until the context is full, beside others that do so at another step."""
    numbers = list(range(len(run.prompts)))
    room = [LIMIT - len(ids) for ids in run.prompts]
    replies = run.ask_all(numbers, room, 16)
    # The server ends a request two tokens before the context is full, with and without speculation.
    parted = run.check_exact("context limit", numbers, [tokens - 2 for tokens in room], replies)
    after = run.ask_all(numbers[:1], [20], 1)
    parted += run.check_exact("after the context limit", numbers[:1], [20], after)
    return {"answers": len(numbers) + 1, "context_length": LIMIT, "divergences": parted}


def diverges(run: Run) -> dict:
    """With a bug brought back on purpose the answers, or the server, must not survive `batches`."""
    numbers = list(range(len(run.prompts)))
    try:
        replies = run.ask_all(numbers, [TOKENS] * len(numbers), 4)
    except requests.RequestException as error:
        return {"caught_by": f"a failed request ({type(error).__name__})"}
    parted = run.divergences(numbers, replies)
    if not parted:
        run.faults.append("the bug brought back on purpose changed no answer: the exactness test would not see it")
    return {"answers": len(numbers), "caught_by": "unequal tokens", "divergences": parted}


def no_synchronisation(run: Run) -> dict:
    """One answer while a synchronising call in a decode step raises an error."""
    replies = run.ask_all([0], [TOKENS], 1)
    if "DDTREE probe: sync_error armed" not in run.server.log_text():
        run.faults.append("the probe that forbids synchronisation never ran")
    parted = run.check_exact("no synchronisation", [0], [TOKENS], replies)
    return {"answers": 1, "steps": replies[0]["meta_info"]["spec_verify_ct"], "divergences": parted}


def steady_trace(run: Run) -> dict:
    """Answers while the profiler watches: no decode step may wait for the GPU or copy from it."""
    path = run.server.engine.folder / "trace.json"
    run.ask_all([0, 1, 2, 3], [200] * 4, 4)
    if not path.is_file():
        run.faults.append("the probe wrote no trace")
        return {}
    found = summary(path)
    if not found["traced_steps"]:
        run.faults.append("the trace has no decode step")
    if run.on_gpu and found["graph_launches"] != 2 * found["traced_steps"]:
        run.faults.append(f"not two graphs a step: {found['graph_launches']} in {found['traced_steps']} steps")
    if found["inside_steps"]:
        run.faults.append(f"decode steps wait or copy to the host: {found['inside_steps']}")
    return {"trace": found}


def draft_kv(run: Run) -> dict:
    """The drafter's committed KV is what the target's hidden states of the committed text make of it."""
    answer = run.server.ask(run.prompts[1], KV_TOKENS)
    setup = run.server.engine.setup
    pair = load_pair(setup.target, setup.drafters[run.case.block_size])
    found = compare_draft_kv(run.server.engine.folder / "kv.pt", pair, run.prompts[1], answer["output_ids"])
    if found["largest_relative_error"] > KV_TOLERANCE:
        run.faults.append(f"the drafter's KV is off by {found['largest_relative_error']:.1e}")
    return {"draft_kv": found}


WORKLOADS = {
    function.__name__: function
    for function in (
        self_consistency,
        accept,
        batches,
        churn,
        repeat,
        retraction,
        context_limit,
        diverges,
        no_synchronisation,
        steady_trace,
        draft_kv,
        same_trees,
    )
}
