#!/usr/bin/env python3
"""Healthy means that a real completion came back: a wedged scheduler leaves the port open.

Environment: PORT (default 30000), HEALTH_TIMEOUT seconds (default 20: a busy server queues the request).
"""

import json
import os
import sys
import urllib.request

TOKENS = 4


def probe(port: int, timeout_s: float) -> str:
    """Ask for a few tokens; returns one line for the log.

    Raises:
        ValueError: the answer is not a completion of that many tokens.
        OSError: no answer, or an HTTP error.
    """
    sampling = {"max_new_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    body = {"text": "One, two, three,", "sampling_params": sampling}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/generate",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=timeout_s) as response:
        answer = json.load(response)
    text, tokens = answer.get("text"), answer.get("meta_info", {}).get("completion_tokens")
    if not text or tokens != TOKENS:
        raise ValueError(f"asked for {TOKENS} tokens, got {tokens} and the text {text!r}")
    return f"healthy: {text!r}"


def main() -> int:
    try:
        print(probe(int(os.environ.get("PORT", "30000")), float(os.environ.get("HEALTH_TIMEOUT", "20"))))
    except (OSError, ValueError) as error:
        print(f"unhealthy: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
