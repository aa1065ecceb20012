"""Runs the smoke tests in a process of their own against a server of the embedded pair."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def judge(url: str, report: Path, *options: str) -> tuple[int, dict]:
    """Exit code of the suite, and its JSON report, which is written to `report`.

    Raises RuntimeError with all that was printed when there is no report.
    """
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--base-url", url, "--pair", "smollm2-135m"]
    command += ["--json-report", str(report), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not report.is_file():
        raise RuntimeError(f"the suite wrote no report on {url}:\n{done.stdout}{done.stderr}")
    return done.returncode, json.loads(report.read_text())


def not_passed(report: dict) -> dict[str, str]:
    """Probe to `verdict: evidence`, for each that did not pass."""
    return {p["probe"]: f"{p['verdict']}: {p['evidence']}" for p in report["probes"] if p["verdict"] != "pass"}


def is_caught(code: int, others: dict[str, str], wanted: str) -> bool:
    """Whether the suite failed, and by the probe that is named for the fault."""
    return code == 1 and others.get(wanted, "").startswith("fail")
