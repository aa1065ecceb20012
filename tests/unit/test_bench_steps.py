"""Steps are counted apart from time, and the arms are compared pair by pair."""

import json
from argparse import ArgumentTypeError

import pytest

from bench import options, stages
from bench.errors import BenchError
from bench.step_table import ratios, table
from bench.steps import Answer, Wave, compared, medians, ratio, sample
from bench.waves import waves_for


def meta(tokens, latency, steps=None):
    return {"completion_tokens": tokens, "e2e_latency": latency, **({"spec_verify_ct": steps} if steps else {})}


def test_prefill_is_neither_a_step_nor_part_of_the_decode_time():
    prefill = meta(1, 0.5)
    answer = Answer.of(meta(9, 2.5), prefill, speculative=False)
    assert (answer.steps, answer.decode_s) == (8, 2.0)
    answer = Answer.of(meta(9, 2.5, steps=4), prefill, speculative=True)
    assert (answer.steps, answer.decode_s) == (4, 2.0)


def test_answer_that_was_not_drafted_is_no_speculation():
    with pytest.raises(BenchError, match="without its drafter"):
        Answer.of(meta(9, 2.5), meta(1, 0.5), speculative=True)


def test_sample_of_single_requests():
    """Two answers of 21 tokens in 10 steps of 100 ms, each with 500 ms of prefill."""
    waves = [Wave((Answer(tokens=21, steps=10, decode_s=1.0, latency_s=1.5),), wall_s=1.5)] * 2
    row = sample(waves, speculative=True)
    assert (row["requests"], row["tokens"], row["steps"], row["wall_s"]) == (2, 42, 20, 3.0)
    assert row["tokens_per_s"] == 14.0
    assert row["accept_length"] == 2.1
    assert row["ms_per_step"] == 100.0
    assert row["full_batch_tokens_per_s"] == 20.0  # two tokens per step, ten steps per second


def test_step_time_is_that_of_the_full_batch():
    """Steps take 100 ms while both requests run and 50 ms once the first is finished."""
    first = Answer(tokens=21, steps=10, decode_s=1.0, latency_s=1.2)
    second = Answer(tokens=21, steps=20, decode_s=1.5, latency_s=1.7)
    row = sample([Wave((second, first), wall_s=1.7)], speculative=True)
    assert row["ms_per_step"] == 100.0
    assert row["accept_length"] == 1.4
    assert row["full_batch_tokens_per_s"] == pytest.approx(2 * (40 / 30) / 0.1, abs=0.01)


def test_without_speculation_there_is_no_accept_length():
    row = sample([Wave((Answer(11, 10, 1.0, 1.1),), wall_s=1.1)], speculative=False)
    assert row["accept_length"] is None
    assert row["full_batch_tokens_per_s"] == 10.0
    assert medians([row])["accept_length"] is None


def rows(*speeds):
    return [
        {"tokens_per_s": s, "full_batch_tokens_per_s": s, "accept_length": 2.0, "ms_per_step": 1000 / s} for s in speeds
    ]


def test_ratio_of_medians_and_of_each_repetition():
    found = ratio(rows(30.0, 60.0, 40.0), rows(20.0, 20.0, 50.0), "tokens_per_s")
    assert found == {"of_medians": 2.0, "pairs": [1.5, 3.0, 0.8]}


def test_arms_are_compared_with_ar_with_the_chain_and_with_their_eager_form():
    assert compared(["ar", "chain", "tree:8:4", "tree:8:4:eager"]) == [
        ("chain", "ar"),
        ("tree:8:4", "ar"),
        ("tree:8:4:eager", "ar"),
        ("tree:8:4", "chain"),
        ("tree:8:4:eager", "chain"),
        ("tree:8:4", "tree:8:4:eager"),
    ]
    assert compared(["tree:8:4"]) == []


@pytest.mark.parametrize("concurrency", [1, 3, 8, 32])
def test_waves_are_full_and_ask_every_prompt(concurrency):
    prompts = [[i] for i in range(8)]
    waves = waves_for(prompts, concurrency)
    assert len(waves) >= 2
    assert {len(wave) for wave in waves} == {concurrency}
    assert {prompt[0] for wave in waves for prompt in wave} == set(range(8))


def test_concurrency_is_read_once_each_in_rising_order():
    parse = options.counts("--concurrency")
    assert parse("8,1,32,8") == [1, 8, 32]
    for text in ("", "0", "1,-2", "1.5", "a"):
        with pytest.raises(ArgumentTypeError, match="--concurrency"):
            parse(text)


def line(draft, steps=100):
    return {"steps": steps, "draft_ms": draft, "tree_ms": 0.5, "verify_ms": 3.0, "accept_ms": 0.1, "commit_ms": 0.4}


def test_stage_times_leave_out_the_line_that_began_before(tmp_path):
    path = tmp_path / "stages.jsonl"
    path.write_text(json.dumps(line(77)) + "\n")  # of an earlier concurrency
    written = iter([99.0, 1.0, 2.0, 3.0])  # the first is of steps from before, too

    def wave():
        with path.open("a") as file:
            file.write(json.dumps(line(next(written))) + "\n")

    found = stages.measure(wave, path)
    assert (found["steps"], found["draft_ms"], found["sum_ms"]) == (300, 2.0, 6.0)


def test_stage_times_that_never_come_are_an_error(tmp_path):
    with pytest.raises(BenchError, match="0 lines of stage times"):
        stages.measure(lambda: None, tmp_path / "missing.jsonl")


def test_table_shows_the_losing_arms_too():
    samples = {"ar": rows(100.0), "chain": rows(80.0), "tree:16:4": rows(120.0)}
    arms = {name: {"median": {"1": medians(found)}, "stages": None} for name, found in samples.items()}
    arms["tree:16:4"]["stages"] = {"1": stages.summary([line(1.0)])}
    text = table({"arms": arms, "ratios": {"1": ratios(samples)}})
    shown = {words[1]: words for words in map(str.split, text.splitlines()) if len(words) > 2}
    assert shown["chain"][-2:] == ["0.800", "-"]
    assert "1.200" in text and "1.500" in text
    assert text.splitlines()[-1].split() == ["1", "tree:16:4", "1.000", "0.500", "3.000", "0.100", "0.400", "5.000"]
