"""Runs the smoke tests against the fault server, each time in a fresh process that holds both."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from smoke_tests import pair

from .behaviour import Good
from .engine import Engine
from .recording import Recording
from .server import FaultServer

SMOKE_TESTS = Path(__file__).parents[2] / "smoke_tests"
KEY = "sesame"
# A fork server that has imported everything starts a run in a fraction of the time of a new interpreter.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__, "smoke_tests.conftest"])
# The replay answers at once, so that silence shows sooner than on a real server. Seconds.
PATIENCE = {
    "facts.TIMEOUT_S": 3,
    "fresh.TIMEOUT_S": 5,
    "speculation.COUNTERS_TIMEOUT_S": 3,
    "slots.FREED_WITHIN_S": 2,
    "slots.QUIET_WITHIN_S": 1,
    "test_alive.WITHIN_S": 2,
    "baseline.ENOUGH_S": 1,
}


@dataclass(frozen=True)
class Outcome:
    """What a run of the smoke tests said.

    report: the JSON report. output: what was printed.
    """

    exit_code: int
    report: dict[str, Any]
    output: str

    def evidence(self, verdict: str) -> dict[str, str]:
        """The evidence of every probe with that verdict."""
        return {p["probe"]: p["evidence"] for p in self.report["probes"] if p["verdict"] == verdict}


def run(
    behaviour: type[Good], folder: Path, options: Sequence[str] = (), claims: dict[str, Any] | None = None
) -> Outcome:
    """The smoke tests with `options` against a server of that behaviour.

    folder: new, takes their files. claims: keys of the pair's file that are set otherwise.
    """
    folder.mkdir(parents=True)
    process = _PROCESSES.Process(target=_run, args=(behaviour, folder, list(options), claims))
    process.start()
    process.join()
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return Outcome(process.exitcode, report, (folder / "output").read_text(encoding="utf-8"))


def _run(behaviour: type[Good], folder: Path, options: list[str], claims: dict[str, Any]) -> None:
    with (folder / "output").open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    _lose_patience()
    _claim(claims, folder / "pairs")
    key_file = folder / "key"
    key_file.write_text(KEY, encoding="utf-8")
    with FaultServer(Engine(Recording.load()), behaviour(), api_key=KEY).serving() as server:
        own = ["--base-url", server.url, "--api-key-file", str(key_file), "--json-report", str(folder / "report.json")]
        code = pytest.main([str(SMOKE_TESTS), "-p", "no:cacheprovider", *own, *options])
    # Threads of a server that hangs must not hold the process.
    sys.stdout.flush()
    os._exit(code)


def _claim(claims: dict[str, Any], folder: Path) -> None:
    """Let the smoke tests read a copy of the pair's file that claims more."""
    folder.mkdir()
    for path in pair.FOLDER.glob("*.yaml"):
        data = yaml.safe_load(path.read_text(encoding="utf-8")) | claims
        (folder / path.name).write_text(yaml.safe_dump(data, allow_unicode=True), encoding="utf-8")
    pair.FOLDER = folder


def _lose_patience() -> None:
    for name, seconds in PATIENCE.items():
        module, constant = name.split(".")
        setattr(__import__(f"smoke_tests.{module}", fromlist=[constant]), constant, seconds)
