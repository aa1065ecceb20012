"""A fleet with a gateway before every instance, and a router and the monitoring on the first host."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from pathlib import Path

import yaml

from tests.testbed.conftest import PORT, Fleet
from tests.testbed.hosts import Testbed, cache, run
from tests.testbed.operations.load import Gateway

CERTIFICATE = "/etc/ssl/watched.pem"
# Reading, judging and telling take a few intervals each; other tests may hold both cores.
SEEN_S = 120
WORKERS = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8500/workers').read().decode())"


class Operated(Fleet):
    """Its part of the inventory, its keys, all that Ansible said, how clients see it, and what its first host saw."""

    def __init__(self, testbed: Testbed):
        super().__init__(testbed)
        self.on, self.first = testbed.on, self.names[0]
        self.folder = cache() / "testbed" / "operated"
        self.inventory = self.folder / "inventory.yml"
        self.certificates = self.folder / "certificates"
        self.keys = {name: secrets.token_hex(32) for name in ("alice", "router", "monitor")}
        self.instances_key, self.instances_key_file = secrets.token_hex(32), "/root/own-key"
        self.instances: dict = {}
        self.version: Path | None = None
        self.said = ""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write_keys()
        for old in self.certificates.glob("*"):
            old.unlink()
        testbed.connect()
        self.write_inventory()

    def private_address(self, name: str) -> str:
        """Where it is watched; clients come in by the other network."""
        return self.testbed.address(name, self.testbed.private)

    def write_inventory(self) -> None:
        """Addresses change when a host starts again."""
        self.testbed.write_inventory()
        front = {"gateway_keys_file": str(self.folder / "keys"), "gateway_requests_per_minute": 100000}
        front |= {"gateway_certificates": str(self.certificates), "monitoring_interval_s": 5}
        listens = {name: self.private_address(name) for name in self.names}
        hosts = {name: {"monitoring_listen_address": address} | self.instances for name, address in listens.items()}
        hosts[self.first]["monitoring_certificates"] = [CERTIFICATE]
        groups = {name: {"hosts": {self.first: {}}} for name in ("router", "monitoring")}
        document = {"all": {"vars": front, "hosts": hosts, "children": groups}}
        self.inventory.write_text(yaml.safe_dump(document), encoding="utf-8")

    def write_keys(self) -> None:
        """All keys; "old NAME" is another one of NAME."""
        path = self.folder / "keys"
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        lines = (f"{name.split()[-1]} {key}\n" for name, key in self.keys.items())
        path.write_text("".join(lines), encoding="utf-8")

    def keep_instances_key(self) -> None:
        """Let every instance want a key of its own from the next run on."""
        for name in self.names:
            self.on(name, f"install -m 0600 /dev/stdin {self.instances_key_file} <<<{self.instances_key}")
        instance = {"name": "sglang-ddtree", "port": PORT, "api_key_file": self.instances_key_file}
        self.instances = {"sglang_instances": [instance]}
        self.write_inventory()

    def tls_key(self) -> str:
        """A line of the first host's private key."""
        text = (self.certificates / f"{self.first}.pem").read_text(encoding="utf-8")
        return text.split("PRIVATE KEY-----\n")[1].split()[0]

    def secrets(self) -> list[str]:
        return [*self.keys.values(), self.instances_key, self.tls_key()]

    def command(self, playbook: str, *arguments: str, **variables) -> list[str]:
        return super().command(playbook, "-i", str(self.inventory), *arguments, **variables)

    def play(self, playbook: str, *arguments: str, **variables) -> subprocess.CompletedProcess:
        done = super().play(playbook, *arguments, **variables)
        self.said += done.stdout + done.stderr
        return done

    def deploy(self, version: Path, *arguments: str, **variables) -> subprocess.CompletedProcess:
        self.version = version
        return super().deploy(version, *arguments, **variables)

    def client(self, key: str | None = None) -> Gateway:
        return Gateway(self.testbed.address(self.first), self.certificates / "ca.pem", key or self.keys["alice"])

    def workers(self) -> dict[str, bool]:
        """Host -> whether the router finds its instance healthy."""
        said = json.loads(self.on(self.first, f'python3 -c "{WORKERS}"'))
        return {worker["url"].split("/")[3]: worker["is_healthy"] for worker in said["workers"]}

    def all_work(self) -> bool:
        """Whether the router has every host and finds each healthy."""
        return self.workers() == dict.fromkeys(self.names, True)

    def query(self, expression: str) -> list[dict]:
        """Labels and value of each series, as Prometheus answers."""
        ask = 'promtool query instant -o json http://127.0.0.1:9090 "$(cat)"'
        return json.loads(run("docker", "exec", "-i", self.first, "bash", "-c", ask, input=expression).stdout)

    def wait(self, expression: str, count: int) -> list[dict]:
        """Wait until an expression has `count` series."""
        deadline = time.monotonic() + SEEN_S
        while len(found := self.query(expression)) != count:
            assert time.monotonic() < deadline, f"{expression}: {found}"
            time.sleep(1)
        return found

    def alerts(self) -> set[str]:
        """Names of the alerts that Alertmanager would tell the operators."""
        said = self.on(self.first, "amtool --alertmanager.url http://127.0.0.1:9093 alert query --output json")
        return {alert["labels"]["alertname"] for alert in json.loads(said)}

    def wait_alert(self, name: str, fires: bool, seconds: int = SEEN_S) -> None:
        deadline = time.monotonic() + seconds
        while (name in self.alerts()) is not fires:
            assert time.monotonic() < deadline, f"{name} {'does not fire' if fires else 'still fires'}: {self.alerts()}"
            time.sleep(1)

    def certify(self, days: int) -> None:
        """Give the watching host a certificate that ends in so many days."""
        command = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=watched -keyout /dev/null"
        self.on(self.first, f"{command} -days {days} -out {CERTIFICATE}")
