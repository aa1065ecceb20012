"""The process lives, which says nothing about its answers: what a liveness check may ask, and how long it must wait."""

import time

# The web server answers it without the scheduler. /health asks the scheduler, so it calls a long prefill dead.
PATH, WITHIN_S = "/model_info", 10


def test_alive(server, evidence):
    began = time.monotonic()
    server.get(PATH, timeout=WITHIN_S)
    evidence.say(f"{PATH} within {time.monotonic() - began:.2f} s")
