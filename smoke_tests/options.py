"""Command-line options of the suite, and what they must hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import baseline
from .verdict import ProbeError

# Each class holds the probes of the one before it.
CLASSES = ("quick", "full", "soak")
ALGORITHMS = ("tree", "chain", "ar")


def add(parser: pytest.Parser) -> None:
    group = parser.getgroup("smoke", "smoke tests of a running server")
    group.addoption("--base-url", help="the server, for example http://127.0.0.1:30000")
    group.addoption("--pair", help="model pair whose expectations hold (default: by the served model's path)")
    group.addoption("--class", choices=CLASSES, default="quick", dest="smoke_class", help="how long it may take")
    group.addoption("--expect-algorithm", choices=ALGORITHMS, help="what the server is meant to run")
    group.addoption("--api-key-file", type=Path, help="file that holds the server's API key")
    group.addoption("--served-concurrency", type=int, help="requests at once (default: the server's limit, at most 64)")
    group.addoption("--json-report", type=Path, help="where to write the verdicts as JSON")
    group.addoption("--html-report", type=Path, help="where to write the verdicts as one HTML page")
    group.addoption("--baseline", type=Path, help="file of recorded arms to judge speed and token agreement by")
    group.addoption("--record-baseline", type=Path, help="file to which this server's arm is added when all passes")
    group.addoption("--soak-minutes", type=float, default=30, help="length of the soak (default: 30)")


def included(item: pytest.Item, smoke_class: str) -> bool:
    """Whether a probe belongs to the class: unmarked ones to every class."""
    least = next((name for name in CLASSES if item.get_closest_marker(name)), CLASSES[0])
    return CLASSES.index(least) <= CLASSES.index(smoke_class)


def check(config: pytest.Config) -> None:
    """Raises ProbeError for a value that no server could be tested with."""
    concurrency = config.getoption("--served-concurrency")
    if concurrency is not None and concurrency < 1:
        raise ProbeError(f"--served-concurrency {concurrency} is no number of requests: set at least 1")
    minutes = config.getoption("--soak-minutes")
    if not minutes > 0:
        raise ProbeError(f"--soak-minutes {minutes:g} is no length of time: set a number above 0")
    for option in ("--baseline", "--record-baseline"):
        path = config.getoption(option)
        if path is None:
            continue
        if config.getoption("smoke_class") == "quick":
            raise ProbeError(f"{option} needs --class full: speeds are not measured in a quick run")
        if option == "--baseline" or path.exists():
            baseline.load(path)


def read_key(path: Path | None) -> str | None:
    """The API key in the file. Raises ProbeError when the file holds none."""
    if path is None:
        return None
    try:
        key = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ProbeError(f"--api-key-file {path} cannot be read: {error.strerror}") from None
    if not key:
        raise ProbeError(f"--api-key-file {path} is empty: put the server's API key into it")
    return key
