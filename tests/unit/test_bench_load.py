"""Prompts have the length that was asked for, and the load generator's result is summed up rightly."""

import pytest

from bench import host, serving
from bench.contexts import NOTE_TOKENS, Prompts
from bench.errors import BenchError
from bench.prompts import QUESTIONS


class Words:
    """A tokenizer of words, as a prompt's length is counted in whatever the target's are."""

    def apply_chat_template(self, messages, **_):
        return ["<user>", *messages[0]["content"].split(), "<assistant>"]

    def decode(self, ids):
        return " ".join(ids)


@pytest.mark.parametrize("context", [40, 60, 500, 4096])
def test_prompts_fill_the_context_to_within_a_note(context):
    for ids in Prompts(Words(), seed=1).of(context, 10):
        assert context - NOTE_TOKENS <= len(ids) <= context or context == 40


def test_each_prompt_ends_with_its_question_and_begins_with_notes_of_its_own():
    prompts = [Prompts(Words(), seed=1).text(ids) for ids in Prompts(Words(), seed=1).of(300, 20)]
    assert all(QUESTIONS[i % 8] in prompt for i, prompt in enumerate(prompts))
    assert len({prompt[:120] for prompt in prompts}) == 20


def test_seed_decides_the_prompts():
    first, again, other = (Prompts(Words(), seed).of(200) for seed in (1, 1, 2))
    assert first == again != other


def test_context_shorter_than_a_question_is_refused():
    with pytest.raises(BenchError, match="--contexts 5 is shorter than a question"):
        Prompts(Words(), seed=1).of(5)


def result(**changes):
    """Three requests of 5 tokens: first tokens after 0.1, 0.2, 2 s, then one each 10, 20, 10 ms."""
    return {
        "errors": ["", "", ""],
        "ttfts": [0.1, 0.2, 2.0],
        "itls": [[0.01] * 4, [0.02] * 4, [0.01] * 4],
        "output_lens": [5, 5, 5],
        "request_throughput": 1.5,
        "output_throughput": 7.5,
        "request_rate": float("inf"),
        "duration": 2.0,
        **changes,
    }


def test_summary_of_a_closed_loop():
    found = serving.summary(result(), serving.Slo(ttft_s=1.0, tpot_s=0.05))
    assert (found["requests"], found["offered_per_s"], found["tokens_per_s"]) == (3, None, 7.5)
    assert (found["ttft_ms"]["p50"], found["tpot_ms"]["p50"], found["itl_ms"]["p50"]) == (200.0, 10.0, 10.0)
    assert (found["good"], found["goodput_per_s"]) == (2, 1.0)


def test_goodput_needs_both_bounds_kept():
    found = serving.summary(result(), serving.Slo(ttft_s=1.0, tpot_s=0.015))
    assert (found["good"], found["goodput_per_s"]) == (1, 0.5)


def test_failed_request_fails_the_cell():
    with pytest.raises(BenchError, match="1 requests of the load generator failed: refused"):
        serving.summary(result(errors=["", "refused", ""]), serving.Slo(1, 1))


def test_card_that_is_slowed_down_says_by_what():
    seen = host.parse_card("1755, 1980, 61, 695.20, 0x0000000000000004")
    assert (seen["sm_mhz"], seen["sm_mhz_limit"], seen["slowed_by"]) == (1755, 1980, ["power cap"])
    assert host.parse_card("1980, 1980, 40, 120.00, 0x0000000000000001")["slowed_by"] == []
    assert host.parse_card("900, 1980, 90, 300.00, 0x0000000000000068")["slowed_by"] == [
        "hardware",
        "software heat",
        "hardware heat",
    ]


def test_card_that_does_not_tell_fails_no_cell():
    assert host.parse_card("[N/A], 1980, 61, [Not Supported], [N/A]") == {
        "sm_mhz": None,
        "sm_mhz_limit": 1980,
        "celsius": 61,
        "watts": None,
        "slowed_by": [],
    }


def test_watch_counts_what_the_cpu_did():
    watch = host.Watch("cpu")
    sum(range(3_000_000))
    found = watch.summary()
    assert found["cpus"] >= 1 and found["load_max"] >= 0
    assert 0 < found["busy_share"] <= 1 and 0 <= found["steal_share"] <= 1
