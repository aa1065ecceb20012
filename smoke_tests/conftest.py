"""Fixtures and the order of the probes. See README.md for how to run them."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import baseline, options, pair
from .client import Answer, Server
from .report import Evidence, Report, probe_name
from .speculation import Run
from .target import Target, reach
from .verdict import ProbeError

CANNOT_JUDGE = 2
REPORT = pytest.StashKey[Report]()
TARGET = pytest.StashKey[Target]()
ARM = pytest.StashKey[baseline.Arm]()


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add(parser)


def pytest_configure(config: pytest.Config) -> None:
    for name in options.CLASSES:
        config.addinivalue_line("markers", f"{name}: smoke probe of the class {name} and those above it")
    base_url = config.getoption("--base-url", default=None)
    if base_url is None:
        return
    report = Report(config, base_url)
    config.stash[REPORT] = report
    config.pluginmanager.register(report, "smoke-report")
    if config.option.verbose == 0 and config.option.tbstyle == "auto":
        # The report's lines say it all: no dots, tracebacks, headers or second summary.
        config.option.verbose = -2
        config.option.tbstyle = "no"
        config.option.no_header = True
        config.option.reportchars = ""
        config.option.disable_warnings = True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the probes of the class, in order: alive, then ready, since without that nothing else means anything."""
    smoke_class = config.getoption("smoke_class", default="quick")
    beyond = [item for item in items if is_probe(item) and not options.included(item, smoke_class)]
    if beyond:
        config.hook.pytest_deselected(items=beyond)
        items[:] = [item for item in items if item not in beyond]
    # Abandoned and bad requests late, the soak last: they may do harm.
    rank = {"test_alive": 0, "test_ready": 1, "test_abort": 3, "test_errors": 4, "test_soak": 5}
    ordered = iter(sorted(filter(is_probe, items), key=lambda item: rank.get(item.path.stem, 2)))
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


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Records the arm of a server that passed: a baseline of a faulty one would excuse its faults."""
    config = session.config
    path = config.getoption("--record-baseline", default=None)
    if path is None or REPORT not in config.stash:
        return
    report = config.stash[REPORT]
    if report.verdict == "pass" and ARM in config.stash:
        baseline.add(path, config.stash[ARM])
        report.headline(f"recorded {config.stash[ARM].kind} in {path}")
    else:
        report.headline(f"nothing recorded in {path}: the server did not pass")


def _reach(config: pytest.Config) -> Target:
    options.check(config)
    return reach(
        config.getoption("--base-url"),
        options.read_key(config.getoption("--api-key-file")),
        config.getoption("--pair"),
        config.getoption("--served-concurrency"),
        thorough=config.getoption("smoke_class") != "quick",
    )


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
def questions(target: Target) -> tuple[pair.Question, ...]:
    """Everything with a known answer that a run of this class asks."""
    asked = (q for group in target.pair.questions.values() for q in group)
    return tuple(q for q in asked if q.quick or target.thorough)


@pytest.fixture(scope="session")
def sequential(server: Server, questions: tuple[pair.Question, ...]) -> dict[str, Answer]:
    """Question -> answer at temperature 0 over the OpenAI interface, asked one at a time."""
    return {q.ask: server.chat(q.ask, max_tokens=q.max_tokens) for q in questions}


@pytest.fixture(scope="session")
def answered(target: Target) -> Run:
    """The prompts of the acceptance set at temperature 0, one at a time."""
    return Run(target.server, target.acceptance)


@pytest.fixture(scope="session")
def arm(pytestconfig: pytest.Config, target: Target, answered: Run) -> baseline.Arm:
    """This server as an arm, to be compared and recorded."""
    if not (pytestconfig.getoption("--baseline") or pytestconfig.getoption("--record-baseline")):
        pytest.skip("no --baseline and no --record-baseline is named: nothing to compare")
    measured = baseline.measure(target, answered)
    pytestconfig.stash[ARM] = measured
    return measured
