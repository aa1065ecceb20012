"""At every node of a tree the penalties are those of SGLang's own penalizers, fed the node's text token by token."""

from types import SimpleNamespace

import pytest
import torch
from sglang.srt.sampling import penaltylib
from sglang_ddtree import ops
from sglang_ddtree.penalties import Penalties
from sglang_ddtree.penalty_tracker import PenaltyTracker

VOCAB, DEPTH, BUDGET, TOP_K = 7, 4, 12, 3
KINDS = {
    penaltylib.BatchedFrequencyPenalizer,
    penaltylib.BatchedPresencePenalizer,
    penaltylib.BatchedRepetitionPenalizer,
    penaltylib.BatchedMinNewTokensPenalizer,
}
NONE = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "min_new_tokens": 0}
MIXED = [
    {"frequency_penalty": 0.7, "presence_penalty": -0.4},
    {"repetition_penalty": 1.3},
    {"frequency_penalty": -0.2, "presence_penalty": 0.9, "repetition_penalty": 0.8, "min_new_tokens": 4},
    {},
]
# What each request has committed in earlier steps; the last token is the root of its tree.
HISTORY = [[3], [1, 1, 4], [0, 2, 2, 5], [6, 6]]


class Batch(SimpleNamespace):
    """Can be referenced weakly, as the penalizers do."""


def batch_of(params):
    """What the penalizers read of a batch."""
    tokenizer = SimpleNamespace(additional_stop_token_ids={2}, eos_token_id=5)
    chosen = [SimpleNamespace(stop_token_ids=None, **{**NONE, **one}) for one in params]
    # 0.5.23 reads the last of them in place of the tokenizer's.
    reqs = [SimpleNamespace(sampling_params=one, tokenizer=tokenizer, eos_token_ids={5}) for one in chosen]
    return Batch(reqs=reqs, device="cpu")


def orchestrator(batch):
    return penaltylib.BatchedPenalizerOrchestrator(VOCAB, batch, KINDS)


def random_trees(generator, requests):
    """Trees over so few tokens that ways repeat one, and the root's."""
    log_probs = torch.randn(requests, DEPTH, VOCAB, generator=generator).log_softmax(-1)
    values, ids = log_probs.topk(TOP_K)
    roots = torch.tensor([history[-1] for history in HISTORY[:requests]])
    return ops.build_tree(values.contiguous(), ids.contiguous(), roots, BUDGET)


def text_of(tree, request, node):
    """Tokens after the root on the way to a node."""
    tokens = []
    while tree.parent[request, node] >= 0:
        tokens.append(int(tree.token[request, node]))
        node = int(tree.parent[request, node])
    return tokens[::-1]


def by_upstream(one, text, logits):
    """Logits [V] after SGLang's penalizers have seen the text of a request."""
    alone = batch_of([one])
    penalizers = orchestrator(alone)
    for token in text:
        penalizers.cumulate_output_tokens(torch.tensor([token]))
    return by_sums(penalizers, logits)


def by_sums(penalizers, logits):
    """As a step without speculation applies them under overlap scheduling."""
    additive = torch.zeros(1, VOCAB)
    penalizers.accumulate_additive_penalties(additive)
    logits = logits[None] + additive
    scaling = penalizers.accumulate_scaling_penalties()
    if scaling is not None:
        logits = torch.where(logits < 0, logits * scaling, logits / scaling)
    return logits[0]


@pytest.mark.parametrize("params", [MIXED, MIXED[:1], [{"min_new_tokens": 3}], [{"repetition_penalty": 2.0}] * 2])
def test_a_node_is_penalised_for_its_own_text(params):
    generator = torch.Generator().manual_seed(len(params))
    requests = len(params)
    tree = random_trees(generator, requests)
    logits = torch.randn(requests, BUDGET + 1, VOCAB, generator=generator)
    batch = batch_of(params)
    penalties = Penalties.of(orchestrator(batch))
    longest = max(len(history) for history in HISTORY)
    padded = torch.tensor([history + [0] * (longest - len(history)) for history in HISTORY[:requests]])
    penalties.count(padded, torch.tensor([len(history) for history in HISTORY[:requests]], dtype=torch.int32))

    found = logits.clone()
    penalties.apply(found, tree, DEPTH)

    for request, one in enumerate(params):
        for node in range(BUDGET + 1):
            text = HISTORY[request] + text_of(tree, request, node)
            torch.testing.assert_close(found[request, node], by_upstream(one, text, logits[request, node]))


def test_what_a_step_committed_is_counted_once_at_the_next_start():
    batch = batch_of(MIXED)
    batch.sampling_info = SimpleNamespace(acc_additive_penalties=torch.zeros(4, VOCAB))
    batch.spec_info = SimpleNamespace(penalizers=orchestrator(batch))
    batch.req_pool_indices = torch.tensor([5, 1, 3, 2])
    tracker = PenaltyTracker(rows=8, block_size=3, device="cpu")

    tracker.prefilled(batch, torch.tensor([4, 4, 4, 4]))
    tracker.start(batch)
    accepted = SimpleNamespace(
        out_tokens=torch.tensor([[1, 1, 0], [6, 0, 0], [2, 3, 1], [0, 0, 0]]),
        commit_lens=torch.tensor([2, 1, 3, 1], dtype=torch.int32),
    )
    tracker.committed(batch, accepted)
    penalties = tracker.start(batch)

    texts = [[4, 1, 1], [4, 6], [4, 2, 3, 1], [4, 0]]
    logits = torch.randn(4, 1, VOCAB, generator=torch.Generator().manual_seed(0))
    root = ops.Tree(
        *(torch.full((4, 1), value, dtype=kind) for value, kind in ((0, torch.int64), (-1, torch.int32))),
        torch.zeros(4, 1, dtype=torch.int32),
        torch.zeros(4, 1),
    )
    found = logits.clone()
    penalties.apply(found, root, DEPTH)
    for request, one in enumerate(MIXED):
        torch.testing.assert_close(found[request, 0], by_upstream(one, texts[request], logits[request, 0]))


def test_a_batch_without_penalties_allocates_nothing():
    batch = SimpleNamespace(
        sampling_info=SimpleNamespace(acc_additive_penalties=None),
        spec_info=SimpleNamespace(penalizers=None),
        req_pool_indices=torch.tensor([0]),
    )
    tracker = PenaltyTracker(rows=8, block_size=3, device="cpu")
    tracker.prefilled(batch, torch.tensor([1]))
    assert tracker.start(batch) is None
    assert tracker.tokens is None
