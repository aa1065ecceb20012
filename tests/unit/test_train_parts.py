"""Training's batched models and walk against the simulation, on a random pair."""

import hashlib
from types import SimpleNamespace

import pytest
import torch
from test_simulation_pair import DRAFTER_CONFIG, TARGET_CONFIG, pair  # noqa: F401
from torch.nn import functional

from models.errors import ModelError
from models.train import answers, output
from models.train.corpus import Conversation, Corpus
from models.train.drafter import Drafter, add_layers
from models.train.exam import Exam
from models.train.generate import generate, greedy
from models.train.layers import read_checkpoint
from models.train.loop import Pace, Trainer
from models.train.loss import HeadLoss, labels, sample_anchors
from models.train.questions import split_topics, written
from models.train.target import Target
from tests.simulation import greedy_answer, pooled_accept_length, walk
from tests.simulation.pair import propose, target_features

PROMPTS = [[7, 1, 30], [5, 9, 2], [4, 8, 15, 16, 23], [40, 2]]


@pytest.fixture(scope="module")
def target(pair):  # noqa: F811
    return Target(TARGET_CONFIG, pair.target.weights, "cpu", torch.float32)


@pytest.fixture(scope="module")
def drafter(pair, target):  # noqa: F811
    # bf16 numbers, so that the exam's rounding changes nothing
    return Drafter(DRAFTER_CONFIG, pair.drafter.weights, target.embedding, torch.float32)


@pytest.fixture(scope="module")
def corpus(pair, target):  # noqa: F811
    talks = [Conversation(prompt, list(greedy_answer(pair, prompt, 14).tokens)) for prompt in PROMPTS]
    return Corpus(target, talks, (0, 2), top_k=4)


def close(a, b):
    return torch.allclose(a, b, atol=1e-4, rtol=1e-3)


def test_lock_step_writes_what_the_simulation_answers(pair, target):  # noqa: F811
    found = {}
    for indices, rows in generate(target, PROMPTS, 40, (), greedy, batch=2):
        found.update(zip(indices, rows, strict=True))
    for i, prompt in enumerate(PROMPTS):
        assert found[i] == list(greedy_answer(pair, prompt, 40, ignore_eos=True).tokens)[:40]


def test_a_stopped_row_leaves_the_others_unchanged(pair, target):  # noqa: F811
    prompts = [[i, j] for i in range(6) for j in range(6)]
    [(indices, rows)] = generate(target, prompts, 40, (), greedy, 36)
    whole = dict(zip(indices, rows, strict=True))
    stops = {whole[0][3], whole[7][9]}
    [(indices, rows)] = generate(target, prompts, 40, stops, greedy, 36)
    cut = dict(zip(indices, rows, strict=True))
    assert min(map(len, cut.values())) < 16 < max(map(len, cut.values()))
    for i, row in cut.items():
        assert row == whole[i][: len(row)]
        assert not stops.intersection(row[:-1])
        assert len(row) == 40 or row[-1] in stops


def test_answers_come_back_from_their_file(target, tmp_path):
    chat = SimpleNamespace(eos_token_ids=set(), prompt_ids=lambda number: PROMPTS[number])
    seen = []
    talks = answers.write_answers(target, chat, range(4), 10, 1, lambda *counts: seen.append(counts) or len(seen) == 3)
    assert len(talks) == 3
    assert seen == [(i, 10 * i, sum(10 + len(talk.prompt) for talk in talks[:i])) for i in (1, 2, 3)]
    answers.store(talks, tmp_path / "answers.pt")
    assert answers.load(tmp_path / "answers.pt") == talks


def test_features_and_teacher_are_the_targets(pair, corpus):  # noqa: F811
    batch = corpus.batch(torch.arange(len(PROMPTS)))
    for i, prompt in enumerate(PROMPTS):
        ids = batch.tokens[i, : batch.end[i]].tolist()
        assert ids[: len(prompt)] == prompt
        assert close(batch.features[i, : len(ids)], target_features(pair, ids))
        streams = pair.target.forward(ids).streams
        best = pair.target.logits(streams[-1]).topk(4)
        answer = slice(len(prompt), len(ids))
        asked = slice(len(prompt) - 1, len(ids) - 1)
        assert torch.equal(batch.teacher_ids[i, answer], best.indices[asked])
        assert close(batch.teacher_probs[i, answer], best.values[asked].softmax(-1))


def test_blocks_are_those_of_the_simulation(pair, drafter, corpus):  # noqa: F811
    batch = corpus.batch(torch.arange(len(PROMPTS)))
    offsets = torch.tensor([0, 3, 9])
    hidden = drafter.hidden(batch.tokens, batch.features, batch.begin[:, None] + offsets)
    for i, prompt in enumerate(PROMPTS):
        answer = greedy_answer(pair, prompt, 14)
        for j, anchor in enumerate(offsets.tolist()):
            best = (hidden[i, j, 1:] @ pair.target.head.T).log_softmax(-1).topk(8)
            known = propose(pair, answer, anchor, drafter.block_size)
            assert best.indices.tolist() == [row[:8] for row in known.tokens]
            assert close(best.values, torch.tensor(known.logprobs)[:, :8])


def test_exam_counts_as_the_simulation_walks(pair, target, drafter):  # noqa: F811
    rounded = {name: w.bfloat16().float() for name, w in pair.drafter.weights.items()}
    chat = SimpleNamespace(eos_token_ids=set(), prompt_ids=lambda number: PROMPTS[number])
    exam = Exam(target, chat, range(len(PROMPTS)), drafter, limit=20, batch=8)
    taken = exam.take(drafter.weights, budgets=(4, 16))
    same = type(pair)(pair.target, pair.chat, type(pair.drafter)(DRAFTER_CONFIG, rounded))
    answers = [greedy_answer(same, prompt, 20) for prompt in PROMPTS]
    assert taken["chain"] == pooled_accept_length(walk(same, answer, "chain") for answer in answers)
    for budget in (4, 16):
        expected = pooled_accept_length(walk(same, answer, "tree", budget, 8) for answer in answers)
        assert taken[f"tree{budget}"] == expected


def test_new_layers_change_nothing(pair, target, drafter, corpus):  # noqa: F811
    config, weights = add_layers(DRAFTER_CONFIG, pair.drafter.weights, 4)
    deeper = Drafter(config, weights, target.embedding, torch.float32)
    batch = corpus.batch(torch.tensor([0, 2]))
    anchors = batch.begin[:, None] + torch.tensor([1, 5])
    found, known = (d.hidden(batch.tokens, batch.features, anchors) for d in (deeper, drafter))
    assert close(found, known)
    with pytest.raises(ModelError, match="--layers is 1"):
        add_layers(DRAFTER_CONFIG, pair.drafter.weights, 1)


def test_head_loss_is_cross_entropy_with_its_gradient():
    torch.manual_seed(0)
    hidden, head = torch.randn(9, 6, requires_grad=True), torch.randn(20, 6)
    ids, weights = torch.randint(20, (9, 3)), torch.rand(9)
    shares = torch.rand(9, 3).softmax(-1)
    loss = HeadLoss.apply(hidden, head, ids, shares, weights)
    loss.backward()
    twin = hidden.detach().clone().requires_grad_()
    wanted = torch.zeros(9, 20).scatter_add_(1, ids, shares)
    per_row = functional.cross_entropy(twin @ head.T, wanted, reduction="none")
    expected = (per_row * weights).sum() / weights.sum()
    expected.backward()
    assert close(loss, expected)
    assert close(hidden.grad, twin.grad)


def test_labels_are_the_tokens_behind_each_anchor(corpus):
    batch = corpus.batch(torch.arange(len(PROMPTS)))
    anchors = sample_anchors(batch, 6, torch.Generator().manual_seed(0))
    assert (anchors >= batch.begin[:, None]).all()
    assert (anchors < batch.end[:, None] - 1).all()
    ids, shares, weights = labels(batch, anchors, block_size=5, soft=0.25)
    assert torch.allclose(shares.sum(-1)[weights > 0], torch.tensor(1.0))
    for i in range(len(PROMPTS)):
        for j, anchor in enumerate(anchors[i].tolist()):
            for depth in range(1, 5):
                inside = anchor + depth < batch.end[i]
                assert (weights[i, j, depth - 1] > 0) == inside
                if inside:
                    assert ids[i, j, depth - 1, 0] == batch.tokens[i, anchor + depth]


def trainer_of(pair, target, corpus, steps):  # noqa: F811
    drafter = Drafter(DRAFTER_CONFIG, pair.drafter.weights, target.embedding, torch.float32)
    pace = Pace(sequences=2, anchors=4, rate=3e-3, soft=0.5, seconds=60, steps=steps, save_every=1e9)
    return Trainer(drafter, corpus, target.head, pace, seed=3)


def test_training_lowers_the_loss_and_goes_on_where_it_stopped(pair, target, corpus, tmp_path):  # noqa: F811
    losses = []
    straight = trainer_of(pair, target, corpus, steps=30)
    numbers = straight._numbers()
    for step in range(30):
        losses.append(float(straight._one_step(next(numbers))))
        if step == 9:
            straight.store(tmp_path / "state.pt")
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    resumed = trainer_of(pair, target, corpus, steps=30)
    resumed.restore(tmp_path / "state.pt")
    numbers = resumed._numbers()
    assert [float(resumed._one_step(next(numbers))) for _ in range(20)] == losses[10:]


def test_parts_join_to_the_checkpoint(pair, monkeypatch, tmp_path):  # noqa: F811
    monkeypatch.setattr(output, "PART_BYTES", 5000)
    output.write_drafter(tmp_path, DRAFTER_CONFIG, pair.drafter.weights, {"steps": 1})
    parts = sorted(tmp_path.glob("weights-*"))
    assert len(parts) > 2
    content = b"".join(part.read_bytes() for part in parts)
    assert (tmp_path / "model.sha256").read_text() == f"{hashlib.sha256(content).hexdigest()}  model.safetensors\n"
    (tmp_path / "model.safetensors").write_bytes(content)
    config, weights = read_checkpoint(tmp_path)
    assert config == DRAFTER_CONFIG
    assert all(torch.equal(weights[name], w.bfloat16().float()) for name, w in pair.drafter.weights.items())


def test_no_topic_is_on_both_sides():
    training, held_out = split_topics()
    assert len(training) > 8 * len(held_out) > 200
    assert not set(training) & set(held_out)
    assert len(set(written(training))) == len(written(training)) > 12000


def test_a_step_in_16_bits_is_near_one_in_32(pair, target, corpus):  # noqa: F811
    half = Target(TARGET_CONFIG, pair.target.weights, "cpu", torch.bfloat16)
    [(_, rows)] = generate(half, [PROMPTS[0]], 20, (), greedy, 1)
    talks = [Conversation(prompt, rows[0]) for prompt in PROMPTS]
    drafter = Drafter(DRAFTER_CONFIG, pair.drafter.weights, half.embedding, torch.bfloat16)
    pace = Pace(sequences=4, anchors=8, rate=1e-3, soft=0.5, seconds=60)
    found, known = (
        Trainer(drafter, Corpus(model, talks, (0, 2), top_k=4), model.head, pace, seed=3)
        for model, drafter in (
            (half, drafter),
            (target, Drafter(DRAFTER_CONFIG, pair.drafter.weights, target.embedding, torch.float32)),
        )
    )
    numbers = torch.arange(4)
    assert float(found._one_step(numbers)) == pytest.approx(float(known._one_step(numbers)), rel=0.02)
    for name, weight in found.drafter.weights.items():
        assert weight.dtype == torch.float32
        gradients = (weight.grad.flatten(), known.drafter.weights[name].grad.flatten())
        assert functional.cosine_similarity(*gradients, dim=0) > 0.95, name
