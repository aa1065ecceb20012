"""The dashboards' files are those of their source, and Prometheus can read every expression in them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import yaml

from scripts import dashboards
from tests.unit.test_alerts import GROUPS, promtool  # noqa: F401

ROOT = Path(__file__).parents[2]
SOURCE = yaml.safe_load(dashboards.SOURCE.read_text(encoding="utf-8"))


def expressions() -> list[str]:
    panels = [panel for dashboard in SOURCE.values() for panel in dashboard["panels"]]
    return [expr for panel in panels for expr, _ in dashboards.targets(panel)]


def test_the_files_are_what_the_source_says():
    assert dashboards.main(["--check"]) == 0


def test_prometheus_can_read_every_expression(promtool, tmp_path):  # noqa: F811
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(expressions())]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_series_of_an_engine_is_one_that_it_has():
    recording = json.loads((ROOT / "tests/fault_server/recording.json").read_text(encoding="utf-8"))
    known = set(re.findall(r"(sglang:\w+)", "\n".join(recording["metrics"])))
    rules = [rule["expr"] for group in GROUPS for rule in group["rules"]]
    asked = set(re.findall(r"(sglang:\w+)", " ".join([*expressions(), *rules])))
    # The recording leaves the buckets of histograms out.
    assert {name.removesuffix("_bucket") for name in asked} <= known


def test_every_figure_of_the_kit_is_one_that_it_writes():
    script = (ROOT / "ansible/roles/monitoring/files/kit_metrics.py").read_text(encoding="utf-8")
    written = set(re.findall(r'add\(\s*"(ddtree_\w+)"', script))
    rules = [rule["expr"] for group in GROUPS for rule in group["rules"]]
    labels = {"ddtree_instance"}
    assert set(re.findall(r"(?<!:)\b(ddtree_\w+)", " ".join([*expressions(), *rules]))) - labels <= written


def test_every_card_field_is_one_that_is_read():
    fields = (ROOT / "ansible/roles/monitoring/files/etc/dcgm-exporter/sglang-ddtree.csv").read_text(encoding="utf-8")
    rules = [rule["expr"] for group in GROUPS for rule in group["rules"]]
    asked = set(re.findall(r"DCGM_\w+", " ".join([*expressions(), *rules])))
    assert asked <= set(re.findall(r"^(DCGM_\w+),", fields, re.M))


def test_panels_do_not_overlap_in_grafana():
    for uid, dashboard in SOURCE.items():
        places = [panel["gridPos"] for panel in dashboards.grafana(uid, dashboard)["panels"]]
        cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
        assert len(cells) == len(set(cells)), uid
        assert max(x for x, _ in cells) < dashboards.COLUMNS
