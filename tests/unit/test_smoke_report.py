"""Verdicts, exit codes and the three forms of a report, from real pytest runs."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "smoke_tests/report.schema.json").read_text())
# The suite's own plugin and options around probes that need no server.
CONFTEST = """
import pytest
from smoke_tests import options, report

def pytest_addoption(parser):
    options.add(parser)

def pytest_configure(config):
    config.option.tbstyle = "no"
    config.pluginmanager.register(report.Report(config, "http://server"), "smoke-report")

@pytest.fixture
def evidence(record_property):
    found = report.Evidence()
    record_property("evidence", found)
    return found
"""
PASSED = "def test_good(evidence):\n    evidence.say('2 of 2 right', wrong=0)\n"
SKIPPED = "import pytest\ndef test_unclaimed():\n    pytest.skip('the pair claims no coding')\n"
FAILED = """
from smoke_tests.verdict import expect
def test_bad(evidence):
    evidence.say('', accept_length=1.0)
    expect(False, 'tokens < 3 & more', '<b>1.0</b>', 'a "wrong" drafter')
"""
BROKEN = "def test_broken():\n    {}['choices']\n"


def run(folder, *probes):
    """Runs the probes; returns (exit code, JSON report, HTML, JUnit)."""
    (folder / "conftest.py").write_text(CONFTEST)
    for i, probe in enumerate(probes):
        (folder / f"test_{i}.py").write_text(probe)
    outputs = ["--json-report=r.json", "--html-report=r.html", "--junitxml=j.xml"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), *outputs]
    ended = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert (folder / "r.json").exists(), ended.stdout + ended.stderr
    document = json.loads((folder / "r.json").read_text())
    return ended.returncode, document, (folder / "r.html").read_text(), (folder / "j.xml").read_text()


@pytest.mark.parametrize(
    ("probes", "code", "verdict"),
    [
        ([PASSED], 0, "pass"),
        ([PASSED, SKIPPED], 0, "pass"),
        ([PASSED, FAILED], 1, "fail"),
        ([PASSED, BROKEN], 1, "fail"),
        ([SKIPPED], 2, "inconclusive"),
    ],
)
def test_exit_code_follows_the_verdict(tmp_path, probes, code, verdict):
    ended, document, page, _ = run(tmp_path, *probes)
    assert (ended, document["verdict"]) == (code, verdict)
    jsonschema.validate(document, SCHEMA)
    assert f"<h1>{verdict.upper()}:" in page


def test_failure_is_told_in_every_form(tmp_path):
    _, document, page, junit = run(tmp_path, PASSED, FAILED)
    sentence = 'expected tokens < 3 & more; came <b>1.0</b>; likely a "wrong" drafter'
    failed = document["probes"][1]
    assert (failed["probe"], failed["evidence"], failed["measured"]) == ("bad", sentence, {"accept_length": 1.0})
    assert [e.get("message") for e in xml.etree.ElementTree.fromstring(junit).iter("failure")] == [sentence]
    assert "&lt;b&gt;1.0&lt;/b&gt;" in page
    assert "<b>1.0" not in page
    assert page.index("tokens &lt; 3") < page.index("2 of 2 right")


def test_unknown_reply_is_a_failure_with_its_place(tmp_path):
    _, document, _, _ = run(tmp_path, BROKEN)
    assert "KeyError: 'choices' (test_0.py:2)" in document["probes"][0]["evidence"]


def test_unreachable_server_is_no_verdict(tmp_path):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "smoke_tests"]
    command += ["--base-url=http://127.0.0.1:9", f"--json-report={tmp_path / 'r.json'}"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    document = json.loads((tmp_path / "r.json").read_text())
    jsonschema.validate(document, SCHEMA)
    assert (ended.returncode, document["verdict"]) == (2, "inconclusive")
    assert "Connection refused" in document["stopped"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--served-concurrency=0"], "set at least 1"),
        (["--class=soak", "--soak-minutes=0"], "set a number above 0"),
        (["--record-baseline=b.json"], "--record-baseline needs --class full"),
        (["--class=full", "--baseline=/no/such.json"], "record it with --record-baseline"),
        (["--api-key-file=/no/such.key"], "cannot be read"),
    ],
)
def test_bad_option_ends_the_run_before_any_request(options, message):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "smoke_tests", "--base-url=http://127.0.0.1:9"]
    ended = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 2
    assert message in ended.stdout + ended.stderr
