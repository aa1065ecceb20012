"""One host watches all three: what it reads, who else may read it, and an alert that comes and goes with its fault."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from tests.testbed.conftest import Fleet, changed
from tests.testbed.hosts import ROOT, cache, run
from tests.testbed.test_ladder import MODELS, wait_for

pytestmark = pytest.mark.slow

CERTIFICATE = "/etc/ssl/watched.pem"
# Reading, judging and telling take a few intervals each; other tests may hold both cores.
SEEN_S = 120
#: Series that the replayed answers of the light versions do not move, and what only GPU hosts have.
WITHOUT_DATA = {"gpu", "engine", "streams", "profile"}


class Watched:
    """The fleet as its first host sees it."""

    def __init__(self, fleet: Fleet):
        self.fleet, self.on = fleet, fleet.testbed.on
        self.server = fleet.names[0]
        self.inventory = fleet.testbed.folder / "monitoring.yml"
        hosts = {name: {"monitoring_listen_address": fleet.testbed.address(name)} for name in fleet.names}
        hosts[self.server]["monitoring_certificates"] = [CERTIFICATE]
        group = {"hosts": {self.server: {}}, "vars": {"monitoring_interval_s": 2}}
        document = {"all": {"hosts": hosts, "children": {"monitoring": group}}}
        self.inventory.write_text(yaml.safe_dump(document), encoding="utf-8")

    def play(self, playbook: str, *arguments: str, **variables):
        done = self.fleet.play(playbook, "-i", str(self.inventory), *arguments, **variables)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
        return done

    def query(self, expression: str) -> list[dict]:
        """Labels and value of each series, as Prometheus answers."""
        ask = 'promtool query instant -o json http://127.0.0.1:9090 "$(cat)"'
        return json.loads(run("docker", "exec", "-i", self.server, "bash", "-c", ask, input=expression).stdout)

    def wait(self, expression: str, count: int) -> list[dict]:
        """Wait until an expression has `count` series."""
        deadline = time.monotonic() + SEEN_S
        while len(found := self.query(expression)) != count:
            assert time.monotonic() < deadline, f"{expression}: {found}"
            time.sleep(1)
        return found

    def alerts(self) -> set[str]:
        """Names of the alerts that Alertmanager would tell the operators."""
        said = self.on(self.server, "amtool --alertmanager.url http://127.0.0.1:9093 alert query --output json")
        return {alert["labels"]["alertname"] for alert in json.loads(said)}

    def wait_alert(self, name: str, fires: bool) -> None:
        deadline = time.monotonic() + SEEN_S
        while (name in self.alerts()) is not fires:
            assert time.monotonic() < deadline, f"{name} {'does not fire' if fires else 'still fires'}: {self.alerts()}"
            time.sleep(1)

    def certify(self, days: int) -> None:
        """Give the watching host a certificate that ends in so many days."""
        command = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=watched -keyout /dev/null"
        self.on(self.server, f"{command} -days {days} -out {CERTIFICATE}")


@pytest.fixture(scope="module")
def watched(fleet, versions) -> Watched:
    found = Watched(fleet)
    arguments = ("-i", str(found.inventory))
    done = fleet.deploy(versions["good"], *arguments)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    found.certify(days=60)
    return found


def test_every_host_and_instance_is_watched_after_one_command(watched):
    watched.wait('up{job="node"} == 1', 3)
    watched.wait('up{job="sglang", ddtree_instance="sglang-ddtree"} == 1', 3)
    for name in watched.fleet.names:
        release = watched.wait(f'ddtree_release_info{{host="{name}"}}', 1)[0]["metric"]
        assert release["release"] == release["good_release"] == watched.fleet.release(name)
    assert {row["value"][1] for row in watched.wait("ddtree_gate_passed", 3)} == {"1"}
    low, high = (watched.wait(f"ddtree_accept_length_{end}", 3)[0]["value"][1] for end in ("low", "high"))
    measured = watched.fleet.record(watched.server)["smoke"]["measured"]["windows"].values()
    assert (float(low), float(high)) == (min(w[0] for w in measured), max(w[1] for w in measured))


def test_a_second_run_changes_nothing(watched):
    done = watched.play("ansible/monitoring.yml")
    assert changed(done) == dict.fromkeys(watched.fleet.names, 0), done.stdout[-3000:]


def test_only_one_port_answers_from_outside_and_only_with_the_token(watched):
    for name in watched.fleet.names:
        address = watched.fleet.testbed.address(name)
        listening = watched.on(name, "ss --listening --tcp --numeric --no-header | awk '{print $4}'").split()
        outside = {socket for socket in listening if not socket.startswith(("127.", "[::1]"))}
        assert {socket for socket in outside if not socket.endswith(":22")} == {f"{address}:9999"}
    ask = (
        "import sys, urllib.request as r, urllib.error as e\n"
        "for header in ({}, {'Authorization': 'Bearer ' + open('/etc/prometheus/exporters.token').read()}):\n"
        f"  try: print(r.urlopen(r.Request('http://{address}:9999/proxy?module=node', headers=header)).status)\n"
        "  except e.HTTPError as error: print(error.code)\n"
    )
    assert watched.on(watched.server, f'python3 -c "{ask}"').split() == ["401", "200"]
    assert watched.on(name, "stat -c '%U %G %a' /etc/prometheus/exporters.token") == "root prometheus 640"


def test_an_alert_fires_on_its_fault_and_resolves_without_it(watched):
    watched.wait_alert("CertificateEnds", fires=False)
    watched.certify(days=3)
    watched.wait_alert("CertificateEnds", fires=True)
    watched.certify(days=60)
    watched.wait_alert("CertificateEnds", fires=False)


def test_every_panel_of_the_dashboards_has_data(watched):
    with watched.fleet.clients(*watched.fleet.names):
        time.sleep(10)
    watched.wait("ddtree:accept_length:15m", 3)
    dashboards = yaml.safe_load((ROOT / "ansible/roles/monitoring/dashboards.yml").read_text(encoding="utf-8"))
    empty = []
    for name, dashboard in dashboards.items():
        for panel in dashboard["panels"]:
            exprs = panel["expr"] if isinstance(panel["expr"], list) else [panel["expr"]]
            for expr in exprs:
                asked = expr.replace("$host", watched.server).replace("$instance", ".+")
                if not watched.query(asked) and panel.get("needs") not in WITHOUT_DATA:
                    empty.append(f"{name}: {panel['title']}: {asked}")
    assert not empty


def test_a_browser_shows_the_dashboards(watched):
    browser = shutil.which("chromium") or pytest.skip("no browser here: apt-get install chromium")
    folder = cache() / "testbed" / "screenshots"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pages = [f"ddtree-{name}" for name in ("fleet", "instance", "speculation", "gpus")]
    with watched.fleet.clients(*watched.fleet.names), tunnel(watched) as port:
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
def tunnel(watched: Watched) -> Iterator[int]:
    """A port of this machine that leads to Prometheus, as an operator would come to it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    testbed = watched.fleet.testbed
    quiet = [f"-o{option}" for option in ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")]
    login = ["-i", str(testbed.key), f"ops@{testbed.address(watched.server)}"]
    process = subprocess.Popen(["ssh", "-N", "-L", f"127.0.0.1:{port}:127.0.0.1:9090", *quiet, *login])
    try:
        time.sleep(3)
        yield port
    finally:
        process.terminate()
        process.wait()


def test_a_crash_loop_is_told_until_a_roll_out_has_climbed_up_again(watched, versions):
    name = watched.fleet.names[1]
    watched.on(name, f"touch {MODELS}/crash-tree")
    wait_for(watched.fleet, name, "chain")
    watched.wait_alert("LadderBelowRelease", fires=True)
    watched.wait_alert("RestartLoop", fires=True)
    watched.on(name, f"rm {MODELS}/crash-*")
    done = watched.fleet.deploy(versions["good"], "-i", str(watched.inventory))
    assert done.returncode == 0, done.stdout[-3000:]
    watched.wait_alert("LadderBelowRelease", fires=False)


def test_a_dead_host_is_told(watched):
    name = watched.fleet.names[2]
    watched.on(name, "systemctl stop prometheus-exporter-exporter")
    try:
        deadline = time.monotonic() + 300
        while not {"HostDown", "InstanceDown"} <= watched.alerts():
            assert time.monotonic() < deadline, watched.alerts()
            time.sleep(2)
    finally:
        watched.on(name, "systemctl start prometheus-exporter-exporter")
    watched.wait_alert("HostDown", fires=False)
