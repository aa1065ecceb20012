"""A server under a long prefill is alive: a liveness check that kills it then would kill good servers."""

import threading
import time

import pytest

from . import fresh
from .test_alive import PATH, WITHIN_S
from .verdict import NoAnswerError, expect


@pytest.mark.full
def test_alive_under_prefill(server, expected, evidence):
    ids = server.chat_ids(expected.coherence.ask)
    # It begins with a number, so no cache holds the prompt.
    prompt = server.chat_ids(f"{time.time_ns()}") + ids * (expected.long_prompt_tokens // len(ids))
    failed: list[Exception] = []
    prefill = threading.Thread(target=_prefill, args=(server, prompt, failed))
    began = time.monotonic()
    prefill.start()
    slowest, asked = 0.0, 0
    while prefill.is_alive() or not asked:
        at = time.monotonic()
        server.get(PATH, timeout=WITHIN_S)
        slowest, asked = max(slowest, time.monotonic() - at), asked + 1
        prefill.join(0.5)
    seconds = time.monotonic() - began
    expect(
        not failed, f"an answer to a prompt of {len(prompt)} tokens", str(failed[:1]), "a prefill that ends the server"
    )
    evidence.say(
        f"{PATH} within {slowest:.2f} s, {asked} times during a prefill of {seconds:.1f} s",
        slowest_seconds=slowest,
        prefill_seconds=seconds,
    )
    fresh.completion(server, expected.questions["known"][0].ask)


def _prefill(server, prompt: list[int], failed: list[Exception]) -> None:
    try:
        server.generate(prompt, max_new_tokens=1)
    except NoAnswerError as error:
        failed.append(error)
