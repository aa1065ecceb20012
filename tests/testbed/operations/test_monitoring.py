"""One host watches all three: what it reads, who else may read it, and an alert that comes and goes with its fault."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from tests.testbed.hosts import ROOT, TestbedError, cache, run
from tests.testbed.operations.fleet import Operated
from tests.testbed.test_ladder import MODELS, wait_for

#: Series that the replayed answers of the light versions do not move, and what only GPU hosts have.
WITHOUT_DATA = {"gpu", "engine", "streams", "profile"}


def test_every_host_and_instance_is_watched_after_one_command(operated):
    operated.wait('up{job="node"} == 1', 3)
    operated.wait('up{job="sglang", ddtree_instance="sglang-ddtree"} == 1', 3)
    for name in operated.names:
        release = operated.wait(f'ddtree_release_info{{host="{name}"}}', 1)[0]["metric"]
        assert release["release"] == release["good_release"] == operated.release(name)
    assert {row["value"][1] for row in operated.wait("ddtree_gate_passed", 3)} == {"1"}
    low, high = (operated.wait(f"ddtree_accept_length_{end}", 3)[0]["value"][1] for end in ("low", "high"))
    measured = operated.record(operated.first)["smoke"]["measured"]["windows"].values()
    assert (float(low), float(high)) == (min(w[0] for w in measured), max(w[1] for w in measured))


def test_exporters_answer_only_with_the_token(operated):
    name = operated.names[2]
    ask = (
        "import sys, urllib.request as r, urllib.error as e\n"
        "for header in ({}, {'Authorization': 'Bearer ' + open('/etc/prometheus/exporters.token').read()}):\n"
        f"  try: print(r.urlopen(r.Request('http://{operated.private_address(name)}:9999/proxy?module=node',"
        " headers=header)).status)\n"
        "  except e.HTTPError as error: print(error.code)\n"
    )
    assert operated.on(operated.first, f'python3 -c "{ask}"').split() == ["401", "200"]
    assert operated.on(name, "stat -c '%U %G %a' /etc/prometheus/exporters.token") == "root prometheus 640"


def test_an_alert_fires_on_its_fault_and_resolves_without_it(operated):
    operated.certify(days=60)
    operated.wait_alert("CertificateEnds", fires=False)
    operated.certify(days=3)
    operated.wait_alert("CertificateEnds", fires=True)
    operated.certify(days=60)
    operated.wait_alert("CertificateEnds", fires=False)


def test_every_panel_of_the_dashboards_has_data(operated):
    with operated.client().load(clients=3, least=100):
        time.sleep(10)
    operated.wait("ddtree:accept_length:15m", 3)
    dashboards = yaml.safe_load((ROOT / "ansible/roles/monitoring/dashboards.yml").read_text(encoding="utf-8"))
    empty = []
    for name, dashboard in dashboards.items():
        for panel in dashboard["panels"]:
            exprs = panel["expr"] if isinstance(panel["expr"], list) else [panel["expr"]]
            for expr in exprs:
                asked = expr.replace("$host", operated.first).replace("$instance", ".+")
                values = {row["value"][1] for row in operated.query(asked)}
                if not values - {"NaN"} and panel.get("needs") not in WITHOUT_DATA:
                    empty.append(f"{name}: {panel['title']}: {asked}")
    assert not empty


@pytest.fixture
def browser() -> str:
    """Chromium, from the distribution where it is not here."""
    if shutil.which("chromium") is None:
        install = "apt-get update && apt-get install --yes --no-install-recommends chromium fonts-dejavu-core"
        try:
            run("bash", "-c", install, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"})
        except TestbedError as error:
            pytest.skip(f"no browser here, and none can be installed: {error}")
    return "chromium"


def test_a_browser_shows_the_dashboards(operated, browser):
    folder = cache() / "testbed" / "screenshots"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pages = [f"ddtree-{name}" for name in ("fleet", "instance", "speculation", "gpus")]
    with operated.client().load(clients=1), tunnel(operated) as port:
        for page in pages:
            options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1400,1700"]
            options += ["--virtual-time-budget=20000", f"--screenshot={folder / page}.png", "--dump-dom"]
            shown = run(browser, *options, f"http://127.0.0.1:{port}/consoles/{page}.html", timeout=120).stdout
            # Only the GPUs and what was never tuned have no curve.
            curves, empty = shown.count("<path"), shown.count("No timeseries returned")
            assert page == "ddtree-gpus" or (curves > 0 and empty <= 2), f"{page}: {curves} curves, {empty} empty"
            assert (folder / f"{page}.png").stat().st_size > 10_000
    print(f"screenshots: {folder}")


@contextmanager
def tunnel(operated: Operated) -> Iterator[int]:
    """A port of this machine that leads to Prometheus, as an operator would come to it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    testbed = operated.testbed
    quiet = [f"-o{option}" for option in ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")]
    login = ["-i", str(testbed.key), f"ops@{testbed.address(operated.first)}"]
    process = subprocess.Popen(["ssh", "-N", "-L", f"127.0.0.1:{port}:127.0.0.1:9090", *quiet, *login])
    try:
        time.sleep(3)
        yield port
    finally:
        process.terminate()
        process.wait()


def test_a_crash_loop_is_told_until_a_roll_out_has_climbed_up_again(operated):
    name = operated.names[1]
    operated.on(name, f"touch {MODELS}/crash-tree")
    wait_for(operated, name, "chain")
    operated.wait_alert("LadderBelowRelease", fires=True)
    operated.wait_alert("RestartLoop", fires=True)
    operated.on(name, f"rm {MODELS}/crash-*")
    done = operated.deploy(operated.version)
    assert done.returncode == 0, done.stdout[-3000:]
    operated.wait_alert("LadderBelowRelease", fires=False)


def test_a_dead_host_is_told(operated):
    name = operated.names[2]
    operated.on(name, "systemctl stop prometheus-exporter-exporter")
    try:
        for alert in ("HostDown", "InstanceDown"):
            operated.wait_alert(alert, fires=True, seconds=300)
    finally:
        operated.on(name, "systemctl start prometheus-exporter-exporter")
    operated.wait_alert("HostDown", fires=False)
