"""A client on a host: asks the server again and again until standard input ends, then prints what it saw as JSON.

client.py PORT [QUESTIONS]      with QUESTIONS it stops after that many
"""

import json
import sys
import threading
import time
import urllib.request

PAUSE_S = 0.3
TIMEOUT_S = 30


def ask(port: int) -> str:
    body = {"model": "x", "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        data=json.dumps(body | {"temperature": 0, "max_tokens": 16}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]


def main() -> None:
    port = int(sys.argv[1])
    limit = int(sys.argv[2]) if len(sys.argv) > 2 else None
    ended = threading.Event()
    if limit is None:
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    answers, failures = 0, []
    while not ended.is_set() and (limit is None or answers + len(failures) < limit):
        try:
            text = ask(port)
            if "Paris" not in text:
                raise ValueError(f"wrong answer {text!r}")
            answers += 1
        except (OSError, ValueError) as error:
            failures.append(f"{time.strftime('%X')} {error}")
        time.sleep(PAUSE_S)
    print(json.dumps({"answers": answers, "failures": failures}))


main()
