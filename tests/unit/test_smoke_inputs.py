"""What the smoke tests read: metrics, server facts, pair files."""

import dataclasses

import pytest
import yaml

from smoke_tests import facts, pair
from smoke_tests.prometheus import Snapshot
from smoke_tests.test_stops import stop_word
from smoke_tests.verdict import difference

METRICS = """\
# HELP sglang:realtime_tokens_total Tokens.
# TYPE sglang:realtime_tokens_total counter
sglang:realtime_tokens_total{mode="prefill_compute",model_name="/m, {x}"} 99.0
sglang:realtime_tokens_total{mode="decode",model_name="/m, {x}"} 40.0
sglang:realtime_tokens_total{mode="decode",model_name="/m, {x}",tp_rank="1"} 2.0
sglang:fwd_occupancy NaN
"""


def test_metrics_are_summed_by_label():
    metrics = Snapshot(METRICS)
    assert metrics.total("sglang:realtime_tokens_total", mode="decode") == 42
    assert metrics.total("sglang:realtime_tokens_total") == 141
    assert metrics.total("sglang:realtime_tokens") == 0
    assert len(metrics.values("sglang:fwd_occupancy")) == 1


TREE = {
    "version": "0.5.16",
    "model_path": "/models/smollm2-135m/target",
    "speculative_algorithm": "ddtree",
    "speculative_num_draft_tokens": 16,
    "speculative_eagle_topk": 1,
    "speculative_dflash_block_size": 8,
    "dp_size": 2,
    "decode_log_interval": 20,
    "internal_states": [{"effective_max_running_requests_per_dp": 4, "ddtree_top_k": 8}],
}


def test_facts_of_a_tree():
    found = facts.from_info(TREE)
    assert (found.algorithm, found.budget, found.top_k, found.block_size) == ("DDTREE", 15, 8, 8)
    assert (found.max_running_requests, found.log_interval, found.replicas) == (8, 20, 2)


def test_facts_of_a_server_without_speculation():
    found = facts.from_info({"model_path": "/m", "speculative_algorithm": None, "max_running_requests": 3})
    assert (found.algorithm, found.budget, found.top_k, found.max_running_requests) == (None, None, None, 3)


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({}, "tree"),
        ({"internal_states": [{"ddtree_top_k": 1}]}, "chain"),
        ({"speculative_algorithm": "DFLASH"}, "chain"),
        ({"speculative_algorithm": None}, "ar"),
        ({"speculative_algorithm": "EAGLE"}, "EAGLE"),
    ],
)
def test_kind_of_a_server(changed, kind):
    assert facts.from_info({**TREE, **changed}).kind == kind


def test_pair_is_found_by_the_longest_name_in_the_path(tmp_path, monkeypatch):
    monkeypatch.setattr(pair, "FOLDER", tmp_path)
    for name in ("small", "small-8b"):
        (tmp_path / f"{name}.yaml").touch()
    assert pair.resolve(None, "/models/small-8b/target") == "small-8b"
    assert pair.resolve("small", "/models/small-8b/target") == "small"
    with pytest.raises(pair.PairError, match="name the pair with --pair"):
        pair.resolve(None, "/models/other")
    with pytest.raises(pair.PairError, match="--pair other is unknown"):
        pair.resolve("other", "/models/small")


@pytest.mark.parametrize("name", pair.known())
def test_shipped_pairs_load(name):
    expected = pair.load(name)
    assert any(question.quick for question in expected.questions["known"])
    for asked in expected.acceptance.values():
        assert asked.prompts
        assert 0 < asked.tolerance < 1


@pytest.mark.parametrize("name", pair.known())
def test_a_whole_recorded_answer_is_right(name):
    questions = [q for group in pair.load(name).questions.values() for q in group if q.text is not None]
    assert [q.ask for q in questions if not q.answered_by(q.text)] == []


@pytest.mark.parametrize("name", pair.known())
def test_recorded_trees_grow_with_their_budget(name):
    for asked in pair.load(name).acceptance.values():
        for one in asked.expected:
            wider = [e for e in asked.expected if e.top_k == one.top_k and e.budget > one.budget]
            assert all(e.accept_lengths[c] >= length for e in wider for c, length in one.accept_lengths.items())


@pytest.mark.parametrize(
    ("section", "content", "message"),
    [
        ("coherence", None, "lacks the key 'coherence'"),
        ("coherence", {"ask": "Why?"}, "cannot be read"),
        ("eos_token_ids", 2, "cannot be read"),
        ("max_differing_share", {"float32": 2}, "a share from 0 to 1"),
        ("questions", {"max_tokens": 8, "copy_prompt": "{}", "riddles": []}, "unknown group riddles"),
    ],
)
def test_broken_pair_file_is_refused(tmp_path, monkeypatch, section, content, message):
    data = yaml.safe_load((pair.FOLDER / "smollm2-135m.yaml").read_text())
    data.pop(section)
    if content is not None:
        data[section] = content
    (tmp_path / "broken.yaml").write_text(yaml.safe_dump(data))
    monkeypatch.setattr(pair, "FOLDER", tmp_path)
    with pytest.raises(pair.PairError, match=message):
        pair.load("broken")


@pytest.mark.parametrize(("dtype", "allowed"), [("float32", 0), ("bfloat16", 5), ("auto", 5)])
def test_near_ties_are_allowed_by_dtype(dtype, allowed):
    known = dataclasses.replace(pair.load("smollm2-135m"), max_differing_share={"float32": 0.0, "bfloat16": 0.5})
    assert known.served_in(dtype).allowed_differing(10) == allowed


def test_a_server_in_a_dtype_without_known_answers_is_not_judged():
    with pytest.raises(pair.PairError, match="runs in bfloat16: start it with --dtype float32"):
        pair.load("smollm2-135m").served_in("bfloat16")


@pytest.mark.parametrize(
    ("text", "right"),
    [("The answer is 4.", True), ("It is 4", True), ("It is 14.", False), ("It is 42.", False), ("", False)],
)
def test_answer_is_a_word_of_its_own(text, right):
    assert pair.Question("What is 2 + 2?", "4", max_tokens=8).answered_by(text) is right


@pytest.mark.parametrize(
    ("text", "right"), [("It is kimi-k3-base.", True), ("Kimi-k3-base", False), ("kimi-kw-base", False)]
)
def test_copied_text_is_exact(text, right):
    assert pair.Question("Repeat exactly: kimi-k3-base", "kimi-k3-base", 8, verbatim=True).answered_by(text) is right


def test_coherence_is_judged_on_an_acceptance_prompt(tmp_path, monkeypatch):
    data = yaml.safe_load((pair.FOLDER / "smollm2-135m.yaml").read_text())
    data["coherence"]["ask"] = "Why?"
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(data))
    monkeypatch.setattr(pair, "FOLDER", tmp_path)
    with pytest.raises(pair.PairError, match=r"coherence.ask must be one of acceptance.quick.prompts"):
        pair.load("other")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("one two three four five", "four"),
        ("over and over and done over", "done"),
        ("a b c d", None),
        ("", None),
    ],
)
def test_stop_word_is_new_in_the_second_half(text, word):
    assert stop_word(text) == word


def test_difference_shows_the_place():
    wanted, came = difference("x" * 100 + "kimi-k3", "x" * 100 + "kimi-kw")
    assert wanted.endswith("kimi-k3'")
    assert came.endswith("kimi-kw'")
