"""Three hosts as one endpoint: a gateway on each, a router on the first, and nothing else that others can reach."""

from __future__ import annotations

import json
import secrets
import socket
import ssl
import time
from pathlib import Path

import pytest
import yaml

from tests.testbed.conftest import Fleet, changed
from tests.testbed.hosts import cache, run
from tests.testbed.load import QUESTION, Gateway

pytestmark = pytest.mark.slow

BODY = {"model": "smollm2-135m", "messages": [QUESTION], "temperature": 0, "max_tokens": 16}
GATEWAY = "/etc/sglang-ddtree/gateway"
HOME = "/var/lib/sglang-ddtree/instances/sglang-ddtree"


class Front:
    """The fleet with gateways and a router: its part of the inventory, its keys, and how clients see it."""

    def __init__(self, fleet: Fleet):
        self.fleet = fleet
        self.router = fleet.names[0]
        self.folder = cache() / "testbed" / "front"
        self.keys = {name: secrets.token_hex(32) for name in ("alice", "router", "monitor")}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write_keys(*self.keys.items())
        for old in (self.folder / "certificates").glob("*"):
            old.unlink()
        front = {"gateway_keys_file": str(self.folder / "keys"), "gateway_requests_per_minute": 100000}
        front["gateway_certificates"] = str(self.folder / "certificates")
        groups = {"router": {"hosts": {self.router: {}}}}
        self.inventory = self.folder / "inventory.yml"
        self.inventory.write_text(yaml.safe_dump({"all": {"vars": front, "children": groups}}), encoding="utf-8")

    def write_keys(self, *entries: tuple[str, str]) -> None:
        path = self.folder / "keys"
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text("".join(f"{name} {key}\n" for name, key in entries), encoding="utf-8")

    def play(self, playbook: str, *arguments: str, **variables):
        return self.fleet.play(playbook, "-i", str(self.inventory), *arguments, **variables)

    def deploy(self, version: Path, *arguments: str, **variables):
        return self.play("site.yml", *arguments, sglang_image_archive=str(version), **variables)

    def client(self, key: str | None = None, host: str | None = None) -> Gateway:
        address = self.fleet.testbed.address(host or self.router)
        return Gateway(address, self.folder / "certificates" / "ca.pem", key or self.keys["alice"])

    def workers(self) -> dict[str, bool]:
        """Host -> whether the router finds its instance healthy."""
        ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8500/workers').read().decode())"
        said = json.loads(self.fleet.testbed.on(self.router, f'python3 -c "{ask}"'))
        return {worker["url"].split("/")[3]: worker["is_healthy"] for worker in said["workers"]}


@pytest.fixture(scope="module")
def front(fleet, versions) -> Front:
    front = Front(fleet)
    done = front.play("ansible/certificates.yml")
    assert done.returncode == 0, done.stdout[-3000:]
    began = time.monotonic()
    done = front.deploy(versions["good"])
    print(f"gateways and a router on {len(fleet.names)} hosts in {time.monotonic() - began:.0f} s")
    assert done.returncode == 0, done.stdout[-4000:]
    return front


def test_a_rolling_update_drops_no_streamed_request(front, versions):
    client = front.client()
    old = {name: front.fleet.release(name) for name in front.fleet.names}
    began = time.monotonic()
    with client.load(clients=4, least=1000):
        done = front.deploy(versions["better"])
    print(f"{client.answers} streamed requests in {time.monotonic() - began:.0f} s of a rolling update")
    assert done.returncode == 0, done.stdout[-4000:]
    assert all(front.fleet.release(name) != old[name] for name in front.fleet.names)
    assert not client.failures, (len(client.failures), client.failures[:5])
    assert client.answers >= 1000
    assert set(front.workers()) == set(front.fleet.names) and all(front.workers().values())


def test_wrong_keys_closed_paths_and_large_bodies_are_refused(front):
    client = front.client()
    assert client.request("/v1/models")[0] == 200
    for key in ("", secrets.token_hex(32), client.key[:-1]):
        assert client.request("/v1/models", key=key)[0] == 401
    closed = ["/flush_cache", "/update_weights_from_disk", "/start_profile", "/workers", "/generate", "/server_info"]
    closed += ["/metrics", "/v1/../flush_cache", "/v1/models/", "/sglang-ddtree/flush_cache", "//v1/models"]
    for path in closed:
        assert (path, client.request(path, {})[0]) == (path, 403)
    assert answer_to_head(client, "Content-Length: 17000000") == 413
    assert answer_to_head(client, "Transfer-Encoding: chunked") == 411
    assert client.request("/sglang-ddtree/v1/chat/completions", BODY)[0] == 200
    monitor = front.client(front.keys["monitor"])
    assert "haproxy_frontend" in monitor.request("/metrics")[1]
    assert "sglang" in monitor.request("/sglang-ddtree/metrics")[1]
    assert "smg_" in monitor.request("/router/metrics")[1]


def half_sent(client: Gateway, header: str) -> ssl.SSLSocket:
    """A connection on which a completion is asked for, of whose body nothing comes."""
    context = ssl.create_default_context(cafile=str(client.authority))
    plain = socket.create_connection((client.address, client.port), timeout=20)
    connection = context.wrap_socket(plain, server_hostname=client.address)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.key}\r\n"
    connection.sendall(f"{head}{header}\r\n\r\n".encode())
    return connection


def answer_to_head(client: Gateway, header: str) -> int:
    with half_sent(client, header) as connection:
        return int(connection.recv(100).split()[1])


def test_slow_clients_block_nobody(front):
    client = front.client()
    slow = [half_sent(client, "Content-Length: 100000") for _ in range(50)]
    try:
        began = time.monotonic()
        for _ in range(10):
            client.ask()
        assert time.monotonic() - began < 10
    finally:
        for connection in slow:
            connection.close()


def test_only_the_gateway_is_reached_from_outside(front):
    for name in front.fleet.names:
        # Docker's own name server of the test network listens on an address of loopback.
        lines = front.fleet.testbed.on(name, "ss -Hltn").splitlines()
        outside = {line.split()[3].rsplit(":", 1)[1] for line in lines if not line.split()[3].startswith("127.")}
        assert outside == {"22", "8443"}, lines
        address = front.fleet.testbed.address(name)
        for port in (30000, 8500, 8501, 8502):
            with socket.socket() as probe:
                probe.settimeout(2)
                assert probe.connect_ex((address, port)) != 0, (name, port)


def found_on(front: Front, name: str, text: str) -> set[str]:
    """What on a host holds a text: files, processes, units, containers and logs."""
    places = "/etc /root /home /tmp /run /usr/local /var/lib/sglang-ddtree /var/log"
    files = front.fleet.testbed.on(name, f"grep -rlF --devices=skip -e '{text}' {places} 2>/dev/null", check=False)
    seen = "ps -eo args; journalctl --no-pager; systemctl cat 'sglang*' --no-pager; "
    seen += "docker image inspect $(docker images -q)"
    said = front.fleet.testbed.on(name, f"({seen}) 2>/dev/null", check=False)
    return set(files.split()) | ({"processes, logs, units or containers"} if text in said else set())


def test_keys_change_while_streams_go_on_and_are_seen_nowhere(front, versions):
    old, new = front.keys["alice"], secrets.token_hex(32)
    unchanged = front.deploy(versions["better"])
    assert changed(unchanged) == dict.fromkeys(front.fleet.names, 0), unchanged.stdout[-3000:]
    client, host = front.client(), front.router
    before = front.fleet.testbed.on(host, "systemctl show --value --property=MainPID sglang-gateway")
    with client.load(clients=4, least=50):
        front.write_keys(*front.keys.items(), ("alice", new))
        said = front.deploy(versions["better"], "-vvv", "--diff")
        assert said.returncode == 0, said.stdout[-3000:]
        assert front.client(new).request("/v1/models")[0] == front.client(old).request("/v1/models")[0] == 200
    assert not client.failures, client.failures[:5]
    # The instances get a key of their own too, which the gateway sends.
    front.keys["alice"], own = new, secrets.token_hex(32)
    front.write_keys(*front.keys.items())
    for name in front.fleet.names:
        front.fleet.testbed.on(name, f"install -m 0600 /dev/stdin /root/own-key <<<{own}")
    keyed = [{"name": "sglang-ddtree", "port": 30000, "api_key_file": "/root/own-key"}]
    client = front.client()
    with client.load(clients=2):
        done = front.deploy(versions["better"], "-vvv", "--diff", sglang_instances=keyed)
    assert done.returncode == 0, done.stdout[-3000:]
    assert client.answers > 0 and not client.failures, client.failures[:5]
    with pytest.raises(AssertionError, match="401"):
        front.fleet.ask(host)
    assert front.client(old).request("/v1/models")[0] == 401
    assert front.client().request("/v1/models")[0] == 200
    assert front.fleet.testbed.on(host, "systemctl show --value --property=MainPID sglang-gateway") == before

    tls = (front.folder / "certificates" / f"{host}.pem").read_text().split("PRIVATE KEY-----\n")[1].split()[0]
    allowed = {old: set(), new: set(), front.keys["monitor"]: set(), QUESTION["content"]: set()}
    allowed[own] = {"/root/own-key", f"{GATEWAY}/secrets.map", f"{HOME}/credentials.env"}
    allowed |= {front.keys["router"]: {f"{GATEWAY}/secrets.map"}, tls: {f"{GATEWAY}/tls.pem"}}
    for text, places in allowed.items():
        assert text not in said.stdout + said.stderr + done.stdout + done.stderr
        assert found_on(front, host, text) == places
    assert front.fleet.testbed.on(host, f"stat -c '%U %a' {GATEWAY}/*.*").splitlines() == ["root 600"] * 5


def test_a_host_that_dies_fails_no_request(front, versions):
    client = front.client()
    # The router's own host stays, so that the others have the load.
    ask = "import urllib.request as u, json; api = 'http://127.0.0.1:8500/workers'; "
    ask += "[u.urlopen(u.Request(api + '/' + w['id'], method='DELETE')) for w in json.load(u.urlopen(api))['workers'] "
    front.fleet.testbed.on(front.router, f"python3 -c \"{ask} if '/{front.router}/' in w['url']]\"")
    time.sleep(2)
    assert front.router not in front.workers()
    with client.load(clients=4, least=100, streamed=False):
        time.sleep(5)
        log = front.fleet.testbed.on(front.router, "journalctl -u sglang-gateway --since -4s --output cat --no-pager")
        busy = max(front.fleet.names[1:], key=lambda name: log.count(f"to=to-{name} "))
        assert log.count(f"to=to-{busy} ") > 10
        run("docker", "kill", busy)
        time.sleep(20)
    print(f"{client.answers} requests while {busy} died, {client.failures[:3]}")
    assert not client.failures, client.failures[:5]
    run("docker", "start", busy)
    front.fleet.testbed.wait(busy)
    front.fleet.testbed.write_inventory()
    done = front.deploy(versions["better"])
    assert done.returncode == 0, done.stdout[-3000:]
    assert set(front.workers()) == set(front.fleet.names) and all(front.workers().values())


def test_a_fleet_without_gateways_has_none_left(front, versions):
    done = front.fleet.deploy(versions["better"])
    assert done.returncode == 0, done.stdout[-3000:]
    for name in front.fleet.names:
        assert not front.fleet.testbed.on(
            name, f"ls {GATEWAY} 2>/dev/null; ss -Hltn | grep -E ':(8443|850.) '", check=False
        )
        front.fleet.ask(name)
