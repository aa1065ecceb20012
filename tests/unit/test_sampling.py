"""Sample-and-walk commits tokens with exactly the target's probabilities, whatever the tree holds."""

from itertools import product

import pytest
import torch
from scipy.stats import chisquare
from sglang_ddtree import ops

VOCAB, DEPTH, SAMPLES = 6, 3, 40_000


def conditional(generator) -> dict[tuple, torch.Tensor]:
    """The target: a distribution over the next token for every context of up to DEPTH tokens."""
    contexts = [c for n in range(DEPTH) for c in product(range(VOCAB), repeat=n)]
    return {c: torch.randn(VOCAB, generator=generator).mul(1.5).softmax(0) for c in contexts}


def joint(target) -> torch.Tensor:
    """Probability of each first three tokens, [V, V, V]."""
    probs = torch.empty(VOCAB, VOCAB, VOCAB)
    for a, b, c in product(range(VOCAB), repeat=3):
        probs[a, b, c] = target[()][a] * target[(a,)][b] * target[(a, b)][c]
    return probs


def random_trees(generator, budget):
    log_probs = torch.randn(SAMPLES, DEPTH, VOCAB, generator=generator).log_softmax(-1)
    values, ids = log_probs.topk(3)
    return ops.build_tree(values.contiguous(), ids.contiguous(), torch.zeros(SAMPLES, dtype=torch.int64), budget)


def node_probs(tree, target) -> torch.Tensor:
    """The target's distribution at every node, [samples, W, V]; a node too deep for the joint is uniform."""
    _, ancestors = ops.finalize(tree, torch.zeros(tree.token.shape[0], dtype=torch.int64))
    probs = torch.full((*tree.token.shape, VOCAB), 1.0 / VOCAB)
    tokens, paths = tree.token.tolist(), ancestors.tolist()
    for sample, rows in enumerate(paths):
        for node, row in enumerate(rows):
            path = tuple(tokens[sample][i] for i in range(1, node + 1) if row[i])
            if path in target:
                probs[sample, node] = target[path]
    return probs


def first_three(target, out_tokens, commit_lens, generator) -> torch.Tensor:
    """Committed tokens continued by plain sampling up to three, as counts [V, V, V]."""
    counts = torch.zeros(VOCAB, VOCAB, VOCAB)
    for tokens, length in zip(out_tokens.tolist(), commit_lens.tolist(), strict=True):
        text = tuple(tokens[: min(length, DEPTH)])
        while len(text) < DEPTH:
            text += (int(torch.multinomial(target[text], 1, generator=generator)),)
        counts[text] += 1
    return counts


def p_value(counts, target) -> float:
    expected = (joint(target) * counts.sum()).double().flatten()
    return chisquare(counts.double().flatten(), expected * (counts.sum() / expected.sum())).pvalue


@pytest.mark.parametrize("budget", [2, 5, 9])
def test_the_joint_of_three_tokens_is_the_targets(budget):
    generator = torch.Generator().manual_seed(budget)
    target = conditional(generator)
    tree = random_trees(generator, budget)
    probs = node_probs(tree, target)
    chosen = torch.multinomial(probs.flatten(0, 1), 1, generator=generator).view(SAMPLES, -1)
    done = ops.accept(tree, chosen, torch.zeros(SAMPLES, dtype=torch.int64), DEPTH + 1)
    assert (done.commit_lens > 1).any()
    assert p_value(first_three(target, done.out_tokens, done.commit_lens, generator), target) > 0.01


def test_a_sibling_accepted_twice_is_seen():
    """Negative control: level-wise coins over siblings, one of them listed twice, are not lossless."""
    generator = torch.Generator().manual_seed(3)
    target = conditional(generator)
    top = int(target[()].argmax())
    counts = torch.zeros(VOCAB, VOCAB, VOCAB)
    for coin in torch.rand(SAMPLES, generator=generator).tolist():
        mass = 0.0
        text = ()
        for sibling in (top, top):
            mass += float(target[()][sibling])
            if coin <= mass:
                text = (sibling,)
                break
        if not text:
            rest = target[()].clone()
            rest[top] = 0
            text = (int(torch.multinomial(rest, 1, generator=generator)),)
        while len(text) < DEPTH:
            text += (int(torch.multinomial(target[text], 1, generator=generator)),)
        counts[text] += 1
    assert p_value(counts, target) < 1e-6
