"""The recording of the fault server: recorded again from its own replay, it is the same."""

from __future__ import annotations

import pytest

from tests.fault_server.behaviour import Good
from tests.fault_server.engine import Engine, Request
from tests.fault_server.record import Upstream
from tests.fault_server.recording import MissingError, Recording, Trajectory
from tests.fault_server.server import FaultServer
from tests.fault_server.text import Tokenizer, chat_prompt, messages_of


def asked(content: str, limit: int) -> Request:
    prompt = chat_prompt([{"role": "user", "content": content}])
    return Request(prompt, tuple(Tokenizer().ids(prompt)), limit)


@pytest.mark.parametrize(
    ("content", "limit"),
    [("What is the capital of France?", 48), ("What colour is the sky?", 64), ("What colour is the sky?", 17)],
)
def test_a_replay_records_as_the_same_steps(content, limit):
    recording, request = Recording.load(), asked(content, limit)
    recorded = recording.answer(request.key, limit, ignore_eos=False)
    with FaultServer(Engine(recording), Good()).serving() as server:
        again = Upstream(server.url).trajectory(request)
    assert again.pieces == recorded.pieces[:limit]
    assert again.drafts == recorded.drafts[: len(again.drafts)]


def test_an_answer_repeats_the_number_of_its_own_prompt():
    recorded = Trajectory((("It",), (" is", " ", "4", "7"), ("1", "1", ".")), surplus=0, nonce="4711")
    assert "".join(recorded.for_nonce("9035").pieces) == "It is 9035."
    assert recorded.for_nonce("9035").for_nonce("4711") == recorded


def test_what_is_not_recorded_is_no_answer():
    request = asked("Who is there?", 8)
    with pytest.raises(MissingError, match=r"run tests\.fault_server\.record: no answer of 8 tokens"):
        Recording.load().answer(request.key, 8, ignore_eos=False)


@pytest.mark.parametrize(
    "text", ["", "a  b\n\tc", "Zażółć e\u0301 \U0001f600", "<|im_start|>user\nHi<|im_end|>\n", "4711"]
)
def test_any_text_comes_back_from_its_tokens(text):
    tokenizer = Tokenizer()
    assert tokenizer.text(tokenizer.ids(text), special=True) == text


def test_a_conversation_is_read_out_of_its_prompt():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi\nthere"}]
    assert messages_of(chat_prompt(messages)) == messages
    assert messages_of("Hi there") is None
