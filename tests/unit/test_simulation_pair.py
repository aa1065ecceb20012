"""The simulation's models and walk, on a random pair that is small enough to make here."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from tests.simulation import Pair, greedy_answer, walk
from tests.simulation.drafter import Drafter
from tests.simulation.layers import attend, rms_norm, rotate
from tests.simulation.pair import propose, target_features
from tests.simulation.target import Target
from tests.simulation.walk import Proposal

VOCABULARY, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER = 48, 24, 4, 2, 8, 40
SHAPE = {
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000.0,
}
TARGET_CONFIG = SHAPE | {"model_type": "llama", "num_hidden_layers": 4}
DRAFTER_CONFIG = SHAPE | {
    "num_hidden_layers": 2,
    "block_size": 5,
    "dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 2]},
}


def layer_weights(name, layers, generator):
    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=generator) / columns**0.5

    weights = {}
    for i in range(layers):
        attention, mlp = f"{name}.{i}.self_attn", f"{name}.{i}.mlp"
        weights[f"{attention}.q_proj.weight"] = matrix(HEADS * HEAD_DIM, HIDDEN)
        weights[f"{attention}.k_proj.weight"] = matrix(KV_HEADS * HEAD_DIM, HIDDEN)
        weights[f"{attention}.v_proj.weight"] = matrix(KV_HEADS * HEAD_DIM, HIDDEN)
        weights[f"{attention}.o_proj.weight"] = matrix(HIDDEN, HEADS * HEAD_DIM)
        weights[f"{mlp}.gate_proj.weight"] = matrix(INNER, HIDDEN)
        weights[f"{mlp}.up_proj.weight"] = matrix(INNER, HIDDEN)
        weights[f"{mlp}.down_proj.weight"] = matrix(HIDDEN, INNER)
        for norm, size in (("input_layernorm", HIDDEN), ("post_attention_layernorm", HIDDEN)):
            weights[f"{name}.{i}.{norm}.weight"] = 1 + torch.randn(size, generator=generator) / 4
        for norm in ("q_norm", "k_norm"):
            weights[f"{attention}.{norm}.weight"] = 1 + torch.randn(HEAD_DIM, generator=generator) / 4
    return weights


@pytest.fixture(scope="module")
def pair():
    generator = torch.Generator().manual_seed(1)
    target = layer_weights("model.layers", 4, generator)
    target["model.embed_tokens.weight"] = torch.randn(VOCABULARY, HIDDEN, generator=generator)
    target["model.norm.weight"] = torch.ones(HIDDEN)
    target["lm_head.weight"] = torch.randn(VOCABULARY, HIDDEN, generator=generator)
    drafter = layer_weights("layers", 2, generator)
    drafter["fc.weight"] = torch.randn(HIDDEN, 2 * HIDDEN, generator=generator) / 7
    drafter["hidden_norm.weight"] = 1 + torch.randn(HIDDEN, generator=generator) / 4
    drafter["norm.weight"] = 1 + torch.randn(HIDDEN, generator=generator) / 4
    no_stop = SimpleNamespace(eos_token_ids=set())
    return Pair(Target(TARGET_CONFIG, target), no_stop, Drafter(DRAFTER_CONFIG, drafter))


@pytest.fixture(scope="module")
def answer(pair):
    return greedy_answer(pair, [7, 1, 30], max_new_tokens=12)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def close(a, b):
    return torch.allclose(a, b, atol=1e-5, rtol=1e-4)


def test_parts_equal_torchs_own():
    x, weight = torch.randn(3, 5, 8), torch.randn(8)
    assert close(rms_norm(x, weight, 1e-5), functional.rms_norm(x, (8,), weight, 1e-5))

    q, k, v = torch.randn(4, 3, 8), torch.randn(2, 6, 8), torch.randn(2, 6, 8)
    visible = torch.rand(3, 6) < 0.6
    visible[:, 0] = True
    expected = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=True)
    assert close(attend(q, k, v, visible), expected.transpose(0, 1).flatten(1))


def rotate_as_complex(x, positions, theta):
    numbers = torch.complex(*x.chunk(2, dim=-1))
    speed = theta ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    turned = numbers * torch.polar(torch.ones(()), positions[:, None] * speed)
    return torch.cat([turned.real, turned.imag], dim=-1)


def test_rotary_embedding_equals_complex_rotation():
    x, positions = torch.randn(2, 5, 8), torch.tensor([0, 1, 5, 40, 900])
    assert close(rotate(x, positions, 1000.0), rotate_as_complex(x, positions, 1000.0))


def test_target_with_cache_equals_one_pass(pair):
    ids = [5, 9, 3, 30, 2, 8]
    whole = pair.target.forward(ids)
    streams, cache = pair.target.forward(ids[:3])
    for i in (3, 4, 5):
        streams, cache = pair.target.forward([ids[i]], cache)
        assert close(streams[-1][0], whole.streams[-1][i])


def test_target_is_causal(pair):
    a, b = pair.target.forward([5, 9, 3]), pair.target.forward([5, 9, 4])
    assert close(a.streams[-1][:2], b.streams[-1][:2])
    assert not close(a.streams[-1][2], b.streams[-1][2])


def test_features_are_the_streams_behind_the_named_layers(pair):
    streams = pair.target.forward([5, 9, 3]).streams
    assert torch.equal(target_features(pair, [5, 9, 3]), torch.cat([streams[0], streams[2]], dim=-1))


def block_as_one_sequence(drafter, features, embeds):
    """The drafter told anew: context and block are one sequence of keys, and the block's part is queried."""
    w, eps = drafter.weights, drafter.eps
    size, total = embeds.shape[0], features.shape[0] + embeds.shape[0]

    def norm(x, name):
        return functional.rms_norm(x, x.shape[-1:], w[f"{name}.weight"], eps)

    context, hidden = norm(features @ w["fc.weight"].T, "hidden_norm"), embeds
    for i in range(2):
        own = norm(hidden, f"layers.{i}.input_layernorm")
        sequence = torch.cat([context, own])

        def split(x, kind, i=i):
            projected = x @ w[f"layers.{i}.self_attn.{kind}_proj.weight"].T
            return projected.view(total, -1, HEAD_DIM).transpose(0, 1)

        q = norm(split(sequence, "q"), f"layers.{i}.self_attn.q_norm")
        k = norm(split(sequence, "k"), f"layers.{i}.self_attn.k_norm")
        q, k = (rotate_as_complex(x, torch.arange(total), drafter.theta) for x in (q, k))
        mixed = functional.scaled_dot_product_attention(q, k, split(sequence, "v"), enable_gqa=True)[:, -size:]
        hidden = hidden + mixed.transpose(0, 1).flatten(1) @ w[f"layers.{i}.self_attn.o_proj.weight"].T
        x = norm(hidden, f"layers.{i}.post_attention_layernorm")
        gate, up, down = (w[f"layers.{i}.mlp.{kind}_proj.weight"] for kind in ("gate", "up", "down"))
        hidden = hidden + (functional.silu(x @ gate.T) * (x @ up.T)) @ down.T
    return norm(hidden, "norm")


@pytest.mark.parametrize("start", [0, 1, 4, 9])
def test_drafter_equals_a_second_telling(pair, start):
    features, embeds = torch.randn(9, 2 * HIDDEN), torch.randn(5, HIDDEN)
    hidden = pair.drafter.block(embeds, pair.drafter.context(features), start)
    assert close(hidden, block_as_one_sequence(pair.drafter, features[:start], embeds))


@pytest.mark.parametrize(("start", "window"), [(9, 3), (9, 1), (4, 6)])
def test_a_window_leaves_the_drafter_the_last_tokens_of_the_context(pair, start, window):
    features, embeds = torch.randn(9, 2 * HIDDEN), torch.randn(5, HIDDEN)
    hidden = pair.drafter.block(embeds, pair.drafter.context(features), start, window)
    # Rotary embeddings know only distances, so the tokens of the window may as well stand at the beginning.
    assert close(hidden, block_as_one_sequence(pair.drafter, features[max(0, start - window) : start], embeds))


@pytest.mark.parametrize("anchor", [0, 3])
def test_proposal_is_of_root_and_masks_behind_the_features_before_the_root(pair, answer, anchor):
    features = answer.features[: 3 + anchor]
    embeds = pair.target.embedding[[answer.tokens[anchor], 3, 3, 3, 3]]
    hidden = block_as_one_sequence(pair.drafter, features, embeds)[1:]
    logits = hidden @ pair.target.weights["lm_head.weight"].T
    proposal = propose(pair, answer, anchor, block_size=5)
    assert [row[0] for row in proposal.tokens] == logits.argmax(-1).tolist()
    expected = logits.softmax(-1).gather(1, torch.tensor(proposal.tokens)).log()
    assert close(torch.tensor(proposal.logprobs), expected)


def test_answer_is_greedy_and_runs_over_by_the_depth(pair, answer):
    assert (answer.length, len(answer.tokens)) == (12, 12 + 4)
    ids = [7, 1, 30, *answer.tokens]
    predicted = pair.target.logits(pair.target.forward(ids).streams[-1]).argmax(-1)
    assert predicted[2:-1].tolist() == list(answer.tokens)


def test_answer_stops_at_eos_unless_ignored(pair, answer):
    stop = next(t for i, t in enumerate(answer.tokens[:8]) if i >= 1 and t not in answer.tokens[:i])
    stopping = Pair(pair.target, SimpleNamespace(eos_token_ids={stop}), pair.drafter)
    short = greedy_answer(stopping, [7, 1, 30], max_new_tokens=12)
    assert short.length == answer.tokens.index(stop) + 1
    assert short.tokens == answer.tokens[: short.length + 4]
    assert greedy_answer(stopping, [7, 1, 30], max_new_tokens=12, ignore_eos=True).length == 12


def with_right_token_at(answer, ranks):
    """Fill in proposals that hold the right token of depth d at rank `ranks[d]`, behind wrong ones."""
    wrong = VOCABULARY + 1
    for anchor in range(answer.length):
        truth = answer.tokens[anchor + 1 : anchor + 5]
        answer.proposals[anchor, 5, None] = Proposal(
            tokens=[[t if r == rank else wrong + r for r in range(4)] for t, rank in zip(truth, ranks, strict=True)],
            logprobs=[[-0.1, -3.0, -4.0, -5.0]] * 4,
        )


@pytest.fixture
def fresh(pair):
    return greedy_answer(pair, [7, 1, 30], max_new_tokens=12)


def test_perfect_drafter_commits_whole_blocks(pair, fresh):
    with_right_token_at(fresh, (0, 0, 0, 0))
    for found in (walk(pair, fresh, "chain"), walk(pair, fresh, "tree", budget=4, top_k=4)):
        assert found.accepted == (4, 4, 4)
        assert (found.committed, found.accept_length) == (12, 4.0)


def test_tree_reaches_what_the_chain_misses(pair, fresh):
    with_right_token_at(fresh, (0, 1, 0, 0))
    assert walk(pair, fresh, "chain").accepted == (1, 1, 1, 1, 1, 1)
    # Nodes 1 to 4 are the spine, 5 and 6 its siblings at depths 1 and 2.
    assert walk(pair, fresh, "tree", budget=5, top_k=4).accepted == (1, 1, 1, 1, 1, 1)
    assert walk(pair, fresh, "tree", budget=6, top_k=4).accepted == (2, 2, 2, 2)
    assert walk(pair, fresh, "tree", budget=84, top_k=2).accepted == (4, 4, 4)
    assert walk(pair, fresh, "tree", budget=84, top_k=1).accepted == (1, 1, 1, 1, 1, 1)


def test_tree_of_one_candidate_equals_chain(pair, answer):
    assert walk(pair, answer, "tree", budget=4, top_k=1) == walk(pair, answer, "chain")


def test_walks_share_proposals(pair, fresh):
    walk(pair, fresh, "chain")
    before = dict(fresh.proposals)
    walk(pair, fresh, "tree", budget=7, top_k=4)
    walk(pair, fresh, "tree", budget=7, top_k=4, block_size=3)
    assert before.items() <= fresh.proposals.items()
    assert {size for _, size, _ in fresh.proposals} == {5, 3}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "beam"}, "method is 'beam'"),
        ({"method": "chain", "block_size": 6}, "block_size is 6"),
        ({"method": "chain", "block_size": 1}, "block_size is 1"),
        ({"method": "tree", "budget": 0, "top_k": 4}, "budget is 0"),
        ({"method": "tree", "budget": 4, "top_k": 0}, "top_k is 0"),
    ],
)
def test_wrong_settings_are_named(pair, answer, settings, message):
    with pytest.raises(ValueError, match=message):
        walk(pair, answer, **settings)


def test_unknown_variant_is_refused():
    with pytest.raises(ValueError, match="rope_scaling"):
        Drafter(DRAFTER_CONFIG | {"rope_scaling": {"type": "yarn"}}, {})
    with pytest.raises(ValueError, match="model_type is 'qwen3'"):
        Target(TARGET_CONFIG | {"model_type": "qwen3"}, {})
