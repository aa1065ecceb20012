"""The server under test, what is expected of it, and what it says about itself."""

from __future__ import annotations

from typing import Any

from . import facts, pair
from .client import Server
from .verdict import NoAnswerError, ProbeError

# How many requests the concurrency probes keep in flight when the server would take more.
MOST_CONCURRENT = 64


class Target:
    """asked: requests at once that the caller wants, None for what the server runs.

    thorough: whether the class of this run is above `quick`.
    """

    def __init__(
        self, server: Server, expected: pair.Pair, found: facts.Facts | None, asked: int | None, thorough: bool
    ):
        self.server = server
        self.pair = expected
        self.thorough = thorough
        self._facts = found
        self._asked = asked

    @property
    def facts(self) -> facts.Facts:
        if self._facts is None:
            raise ProbeError("expected settings from /server_info; came nothing; likely a scheduler that hangs")
        return self._facts

    @property
    def concurrency(self) -> int:
        """Requests at once: what was asked for, else what the server runs."""
        return self._asked or min(self.facts.max_running_requests, MOST_CONCURRENT)

    @property
    def acceptance(self) -> pair.AcceptanceSet:
        """The prompts at temperature 0 of this run's class."""
        return self.pair.acceptance["full" if self.thorough else "quick"]

    def describe(self) -> dict[str, Any]:
        """For the report."""
        known = {**vars(self.facts), "concurrency": self.concurrency} if self._facts else {}
        return {"pair": self.pair.name, **known}

    def __str__(self) -> str:
        if self._facts is None:
            return f"{self.pair.name}  no answer from /server_info"
        f = self._facts
        engine = "AR (no speculation)"
        if f.algorithm:
            top_k = f" top-k {f.top_k}" if f.top_k else ""
            engine = f"{f.algorithm} budget {f.budget}{top_k} block size {f.block_size}"
        return f"SGLang {f.version}  {self.pair.name}  {f.dtype}  {engine}  concurrency {self.concurrency}"


def reach(base_url: str, api_key: str | None, pair_name: str | None, concurrency: int | None, thorough: bool) -> Target:
    """Raises ProbeError when no SGLang server answers, PairError when nothing is known of its model and dtype."""
    server = Server(base_url, api_key)
    # Neither of these two needs the scheduler, so a server with a dead one gets as far as the probes.
    model_path = server.get("/model_info", timeout=facts.TIMEOUT_S)["model_path"]
    server.model = server.get("/v1/models", timeout=facts.TIMEOUT_S)["data"][0]["id"]
    expected = pair.load(pair.resolve(pair_name, model_path))
    found = _facts(server)
    if found is not None:
        expected = expected.served_in(found.dtype)
    return Target(server, expected, found, concurrency, thorough)


def _facts(server: Server) -> facts.Facts | None:
    try:
        return facts.read(server)
    except NoAnswerError:
        # The readiness probe comes first and says what is wrong.
        return None
