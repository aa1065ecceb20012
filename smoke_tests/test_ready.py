"""The server answers a fresh request, which a health endpoint does not prove."""

import time

from . import fresh


def test_ready(server, expected, evidence):
    began = time.monotonic()
    answer = fresh.completion(server, expected.questions["known"][0].ask)
    seconds = time.monotonic() - began
    evidence.say(f"fresh completion of {answer.completion_tokens} tokens in {seconds:.2f} s", answer_seconds=seconds)
