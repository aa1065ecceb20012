"""The servers of a run: own ones, a bounded number of them side by side, and running ones at a URL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from bench.arms import Arm, Launch
from bench.errors import BenchError
from bench.servers import Endpoint, Server, start, stop
from smoke_tests import facts
from smoke_tests.client import Server as Client
from smoke_tests.verdict import ProbeError


class Fleet:
    """Context manager. launches: how each own arm is started. urls: where each other arm runs already.

    side_by_side: most own servers at once. Servers stay up until others need their place.
    """

    def __init__(self, launches: Mapping[str, Launch], urls: Mapping[str, str], logs: Path, side_by_side: int) -> None:
        self.launches, self.logs, self.side_by_side = launches, logs, side_by_side
        self._remote = {name: Endpoint(name, url) for name, url in urls.items()}
        self._up: dict[str, Server] = {}

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_) -> None:
        stop(self._up.values())

    def groups(self, names: Iterable[str]) -> list[list[str]]:
        """The arms split into groups that can be up together; those that run elsewhere are in the first."""
        own = [name for name in names if name not in self._remote]
        groups = [own[i : i + self.side_by_side] for i in range(0, len(own), self.side_by_side)] or [[]]
        return [[*(name for name in names if name in self._remote), *groups[0]], *groups[1:]]

    def deployment(self) -> None:
        """None: these servers were started for the run, or by somebody else."""

    def up(self, names: Iterable[str]) -> dict[str, Endpoint]:
        """The servers of a group, ready to be asked."""
        own = [name for name in names if name not in self._remote]
        missing = [name for name in own if name not in self._up]
        spare = [name for name in self._up if name not in own]
        surplus = len(self._up) + len(missing) - self.side_by_side
        leaving = spare[: max(surplus, 0)]
        stop(self._up.pop(name) for name in leaving)
        self._up |= start({name: self.launches[name] for name in missing}, self.logs)
        return {name: self._remote.get(name) or self._up[name] for name in names}


def check_remote(arm: Arm, url: str) -> None:
    """Raises BenchError unless what runs at `url` is the arm."""
    try:
        found = facts.read(Client(url))
    except ProbeError as error:
        raise BenchError(f"--url {arm.name}={url}: {error}") from None
    wanted = (arm.kind, arm.budget if arm.kind == "tree" else None, arm.top_k if arm.kind == "tree" else None)
    seen = (found.kind, found.budget, found.top_k) if found.kind == "tree" else (found.kind, None, None)
    if wanted != seen:
        shape = f"tree:{found.budget}:{found.top_k}" if found.kind == "tree" else found.kind
        raise BenchError(f"--url {arm.name}={url}: that server runs {shape}: name it so, or start the other")
