"""One line per probe on the terminal, the same with all figures as a JSON document, and as a page for people."""

from __future__ import annotations

import json
import shutil
import textwrap
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from . import page
from .verdict import NoAnswerError, ProbeError

SCHEMA = 1
COLOURS = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 2}
VERDICTS = {"passed": "pass", "failed": "fail", "skipped": "inconclusive"}


@dataclass
class Evidence:
    """What a probe has to show: one line for people, named figures for programs."""

    line: str = ""
    measured: dict[str, Any] = field(default_factory=dict)

    def say(self, line: str, **measured: Any) -> None:
        """Set the line and add figures (seconds, tokens, tokens per second; JSON types only)."""
        self.line = line
        for name, value in measured.items():
            self.measured[name] = round(value, 4) if isinstance(value, float) else value

    def __str__(self) -> str:
        return self.line


@dataclass
class Result:
    probe: str
    promise: str
    verdict: str
    evidence: str
    measured: dict[str, Any]
    seconds: float


class Report:
    """The pytest plugin that collects the verdicts of one run."""

    def __init__(self, config: pytest.Config, base_url: str):
        self._config = config
        self._began = time.monotonic()
        self._started_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self.base_url = base_url
        self.server: dict[str, Any] = {}
        self.stopped: str | None = None
        self.silent_since: str | None = None
        self.results: list[Result] = []
        self._setup_seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo):
        """Replaces a traceback by the sentence of the probe, and notes a server that fell silent."""
        report = yield
        if call.excinfo is None or report.outcome != "failed":
            return report
        error = call.excinfo.value
        report.evidence = str(error) if isinstance(error, ProbeError) else _unexpected(call.excinfo)
        if self._config.option.tbstyle == "no":
            # So that JUnit's file holds the sentence, too.
            report.longrepr = report.evidence
        if isinstance(error, NoAnswerError):
            self.silent_since = self.silent_since or probe_name(item.nodeid)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "setup":
            # Answers that several probes share are asked for in the first one's set-up.
            self._setup_seconds[report.nodeid] = report.duration
        if report.when != "call" and report.outcome == "passed":
            return
        evidence = report.evidence if report.outcome == "failed" else ""
        found = dict(report.user_properties).get("evidence", Evidence())
        result = Result(
            probe=probe_name(report.nodeid),
            promise=Path(report.nodeid.split("::")[0]).stem.removeprefix("test_"),
            verdict=VERDICTS[report.outcome],
            evidence=evidence or _skip_reason(report) or found.line,
            measured=found.measured,
            seconds=round(report.duration + self._setup_seconds.get(report.nodeid, 0) * (report.when == "call"), 2),
        )
        self.results.append(result)
        self._show(result)

    def pytest_report_teststatus(self, report: pytest.TestReport):
        """Mutes pytest's own progress: each probe has its line already."""
        if report.when != "call" and report.outcome == "passed":
            return "", "", ""
        return report.outcome, "", ""

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if not self.results and not self.stopped:
            return
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = EXIT_CODES[self.verdict]
        document = self.document()
        self._write("--json-report", json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        self._write("--html-report", page.of(document))

    def _write(self, option: str, content: str) -> None:
        path: Path | None = self._config.getoption(option)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.results:
            return
        counts = ", ".join(f"{self._count(verdict)} {verdict}" for verdict in COLOURS)
        written = filter(None, (self._config.getoption("--json-report"), self._config.getoption("--html-report")))
        where = "".join(f", {path}" for path in written)
        line = f"{self.verdict.upper()}: {counts} in {self._seconds():.1f} s{where}"
        terminalreporter.write_line(line, **{COLOURS[self.verdict]: True})

    @property
    def verdict(self) -> str:
        """fail when any probe failed, pass when none did and some passed, else inconclusive."""
        if self._count("fail"):
            return "fail"
        return "pass" if self._count("pass") and not self.stopped else "inconclusive"

    def document(self) -> dict[str, Any]:
        """The JSON report."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "stopped": self.stopped,
            "class": self._config.getoption("smoke_class"),
            "base_url": self.base_url,
            "started_at": self._started_at,
            "seconds": round(self._seconds(), 2),
            "server": self.server,
            "probes": [vars(result) for result in self.results],
        }

    def headline(self, line: str) -> None:
        """One line above the verdicts."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(line)

    def _show(self, result: Result) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None:
            return
        reporter.write(f"{result.verdict:<13}", **{COLOURS[result.verdict]: True})
        indent = " " * 42
        text = textwrap.fill(
            result.evidence,
            width=max(120, shutil.get_terminal_size().columns - 1),
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
        )
        reporter.write_line(f"{result.probe:<28} {text.lstrip()}")

    def _count(self, verdict: str) -> int:
        return sum(result.verdict == verdict for result in self.results)

    def _seconds(self) -> float:
        return time.monotonic() - self._began


def probe_name(node_id: str) -> str:
    """The test's name without its prefix."""
    return node_id.split("::")[-1].removeprefix("test_")


def _skip_reason(report: pytest.TestReport) -> str:
    if report.outcome != "skipped":
        return ""
    return str(report.longrepr[2]).removeprefix("Skipped: ")


def _unexpected(excinfo: pytest.ExceptionInfo) -> str:
    where = excinfo.traceback[-1]
    first_line = (str(excinfo.value).splitlines() or [""])[0]
    return (
        f"expected a well-formed reply; came {excinfo.typename}: {first_line} "
        f"({Path(str(where.path)).name}:{where.lineno + 1}); "
        "likely a reply in a form that this suite does not know: run again with --tb=short"
    )
