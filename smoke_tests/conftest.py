"""Options, fixtures and the order of the probes. See README.md for how to run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from . import facts, pair
from .client import Server
from .report import Evidence, Report, probe_name
from .verdict import NoAnswerError, ProbeError

CANNOT_JUDGE = 2
# How many requests the concurrency probe keeps in flight when the server would take more.
MOST_CONCURRENT = 64
REPORT = pytest.StashKey[Report]()
TARGET = pytest.StashKey["Target"]()


class Target:
    """The server under test, what is expected of it, and what it says about itself."""

    def __init__(self, server: Server, expected: pair.Pair, found: facts.Facts | None, asked: int | None):
        self.server = server
        self.pair = expected
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
        return f"SGLang {f.version}  {self.pair.name}  {engine}  concurrency {self.concurrency}"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("smoke", "smoke tests of a running server")
    group.addoption("--base-url", help="the server, for example http://127.0.0.1:30000")
    group.addoption("--pair", help="model pair whose expectations hold (default: by the served model's path)")
    group.addoption("--api-key-file", type=Path, help="file that holds the server's API key")
    group.addoption("--json-report", type=Path, help="where to write the verdicts as JSON")
    group.addoption("--served-concurrency", type=int, help="requests at once (default: the server's limit, at most 64)")


def pytest_configure(config: pytest.Config) -> None:
    base_url = config.getoption("--base-url", default=None)
    if base_url is None:
        return
    report = Report(config, base_url, config.getoption("--json-report"))
    config.stash[REPORT] = report
    config.pluginmanager.register(report, "smoke-report")
    if config.option.verbose == 0 and config.option.tbstyle == "auto":
        # The report's lines say it all: no dots, tracebacks, headers or second summary.
        config.option.verbose = -2
        config.option.tbstyle = "no"
        config.option.no_header = True
        config.option.reportchars = ""
        config.option.disable_warnings = True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Readiness first: without it nothing else means anything. Bad requests last: they may do harm."""
    rank = {"test_ready": 0, "test_errors": 2}
    ordered = iter(sorted(filter(is_probe, items), key=lambda item: rank.get(item.path.stem, 1)))
    items[:] = [next(ordered) if is_probe(item) else item for item in items]


def is_probe(item: pytest.Item) -> bool:
    """Whether a collected test belongs to this folder: others may run in the same session."""
    return Path(__file__).parent in item.path.parents


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Before the first probe: reach the server and learn what is expected of it, or stop with one line."""
    config = session.config
    if config.option.collectonly or not any(map(is_probe, session.items)):
        return
    if REPORT not in config.stash:
        # Skipped probes would look like a passed gate.
        pytest.exit("name the server to test with --base-url", returncode=CANNOT_JUDGE)
    report = config.stash[REPORT]
    try:
        config.stash[TARGET] = target = _reach(config)
    except (ProbeError, pair.PairError) as error:
        report.stopped = f"cannot test {report.base_url}: {error}"
        pytest.exit(report.stopped, returncode=CANNOT_JUDGE)
    report.server = target.describe()
    report.headline(f"{report.base_url}  {target}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    report = item.config.stash[REPORT]
    if report.silent_since not in (None, probe_name(item.nodeid)):
        pytest.skip(f"not run: the server fell silent during {report.silent_since}")


def _reach(config: pytest.Config) -> Target:
    key_file = config.getoption("--api-key-file")
    server = Server(config.getoption("--base-url"), _read_key(key_file) if key_file else None)
    # Neither of these two needs the scheduler, so a server with a dead one gets as far as the probes.
    model_path = server.get("/model_info", timeout=facts.TIMEOUT_S)["model_path"]
    server.model = server.get("/v1/models", timeout=facts.TIMEOUT_S)["data"][0]["id"]
    expected = pair.load(pair.resolve(config.getoption("--pair"), model_path))
    return Target(server, expected, _facts(server), config.getoption("--served-concurrency"))


def _facts(server: Server) -> facts.Facts | None:
    try:
        return facts.read(server)
    except NoAnswerError:
        # The readiness probe comes first and says what is wrong.
        return None


def _read_key(path: Path) -> str:
    try:
        key = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ProbeError(f"--api-key-file {path} cannot be read: {error.strerror}") from None
    if not key:
        raise ProbeError(f"--api-key-file {path} is empty: put the server's API key into it")
    return key


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config) -> Target:
    return pytestconfig.stash[TARGET]


@pytest.fixture(scope="session")
def server(target: Target) -> Server:
    return target.server


@pytest.fixture(scope="session")
def expected(target: Target) -> pair.Pair:
    """What the served pair is expected to do."""
    return target.pair


@pytest.fixture
def evidence(record_property) -> Evidence:
    found = Evidence()
    record_property("evidence", found)
    return found


@pytest.fixture(scope="session")
def sequential(server: Server, expected: pair.Pair) -> dict[str, str]:
    """Question -> answer text at temperature 0, asked one at a time."""
    return {q.ask: server.chat(q.ask, max_tokens=expected.answer_tokens).text for q in expected.questions}
