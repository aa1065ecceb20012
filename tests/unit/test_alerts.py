"""Each alert fires on its fault and stays silent without it, as Prometheus' own promtool sees it, and has a way out."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES = ROOT / "ansible/roles/monitoring/files/etc/prometheus/rules/ddtree.yml"
CASES = yaml.safe_load((Path(__file__).parent / "alerts.yml").read_text(encoding="utf-8"))
GROUPS = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
NOTHING = {"up": "1x60"}


@pytest.fixture(scope="module")
def promtool() -> str:
    found = subprocess.run([ROOT / "scripts" / "prometheus.sh"], capture_output=True, text=True)
    if found.returncode:
        complaint = pytest.fail if os.environ.get("CI") else pytest.skip
        complaint(f"no promtool: {found.stderr}")
    return f"{found.stdout.strip()}/promtool"


def part(case: dict, which: str) -> dict:
    """One test of promtool: the alert of a case among all others."""
    series = case.get("both", {}) | case[which]
    fired = [{"labels": "{}", "value": case.get("count", 1)}] if which == "fires" else []
    return {
        "name": f"{case['alert']} {which} {case.get('why', '')}",
        "interval": "1m",
        "input_series": [{"series": name, "values": str(values)} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{case["alert"]}", alertstate="firing"}})',
                "eval_time": case.get("at", "30m"),
                "exp_samples": fired,
            }
        ],
    }


def test_each_alert_fires_on_its_fault_and_is_silent_without_it(promtool, tmp_path):
    tests = [part(case, which) for case in CASES for which in ("fires", "silent")]
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    done = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_alert_is_left_untested():
    assert {case["alert"] for case in CASES} == set(ALERTS)


def test_each_alert_has_a_way_out_in_the_runbook():
    runbook = (ROOT / "ansible" / "RUNBOOK.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (\w+)$", runbook, re.M) == list(ALERTS)


def test_each_alert_says_how_bad_it_is_and_where():
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("info", "warning", "critical"), name
        assert "$labels.host" in rule["annotations"]["summary"], name
