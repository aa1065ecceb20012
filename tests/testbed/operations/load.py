"""Clients that stream completions from a gateway all the time, and what they saw."""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

TIMEOUT_S = 60
# Four clients send a thousand requests within an update, and leave it a processor to run on.
PAUSE_S = 0.4
QUESTION = {"role": "user", "content": "What is the capital of France?"}


@dataclass
class Gateway:
    """A gateway as a client knows it: where it is, whom it trusts, and its key."""

    address: str
    authority: Path
    key: str
    port: int = 8443
    answers: int = 0
    failures: list[str] = field(default_factory=list)

    def __post_init__(self):
        self._context = ssl.create_default_context(cafile=str(self.authority))
        self._lock = threading.Lock()

    def request(self, path: str, body: object = None, key: str | None = None, timeout: float = TIMEOUT_S):
        """Status and text of one request; `body` is JSON, or bytes as they are. An empty key is not sent."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if key := self.key if key is None else key:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(f"https://{self.address}:{self.port}{path}", data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=self._context) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def ask(self, streamed: bool = True, **options) -> None:
        """One completion; raises ValueError when it is wrong or ends before its end."""
        body = {"model": "smollm2-135m", "messages": [QUESTION], "temperature": 0, "max_tokens": 16, "stream": streamed}
        status, text = self.request("/v1/chat/completions", body, **options)
        if status != 200:
            raise ValueError(f"{status} {text[:300]}")
        if streamed and not text.rstrip().endswith("data: [DONE]"):
            raise ValueError(f"cut off: {text[-200:]!r}")
        if "Paris" not in text:
            raise ValueError(f"wrong answer {text[-300:]!r}")

    @contextmanager
    def load(self, clients: int = 4, least: int = 0, streamed: bool = True) -> Iterator[None]:
        """`clients` ask meanwhile, and until there were `least` answers."""
        ended = threading.Event()
        threads = [threading.Thread(target=self._ask_on, args=[ended, least, streamed]) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join()

    def _ask_on(self, ended: threading.Event, least: int, streamed: bool) -> None:
        while not ended.is_set() or self.answers < least > len(self.failures):
            began = time.monotonic()
            try:
                self.ask(streamed)
            except (OSError, ValueError) as error:
                with self._lock:
                    self.failures.append(f"{time.strftime('%X')} after {time.monotonic() - began:.1f} s: {error}")
            else:
                with self._lock:
                    self.answers += 1
            time.sleep(PAUSE_S)
