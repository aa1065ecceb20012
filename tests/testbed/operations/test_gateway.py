"""Three hosts as one endpoint: a gateway on each, a router on the first, and nothing else that others can reach."""

from __future__ import annotations

import secrets
import socket
import ssl
import time

import pytest

from tests.testbed.conftest import changed
from tests.testbed.hosts import run
from tests.testbed.operations.fleet import Operated
from tests.testbed.operations.load import QUESTION, Gateway

#: What an operator sees at most.
LOUD = ("-vvv", "--diff")
PROMPT = f"Request {secrets.token_hex(16)}. What is the capital of France?"
BODY = {"model": "smollm2-135m", "messages": [QUESTION], "temperature": 0, "max_tokens": 16}
GATEWAY = "/etc/sglang-ddtree/gateway"
RUNTIME = "/run/containerd/io.containerd.runtime.v2.task/moby"
HOME = "/var/lib/sglang-ddtree/instances/sglang-ddtree"


def test_a_rolling_update_drops_no_streamed_request(operated, versions):
    """It brings another version, a second key of a client, and a key of the instances' own, which the gateway sends."""
    client = operated.client()
    old = {name: operated.release(name) for name in operated.names}
    operated.keys |= {"alice": secrets.token_hex(32), "old alice": operated.keys["alice"]}
    operated.write_keys()
    operated.keep_instances_key()
    began = time.monotonic()
    with client.load(clients=4, least=1000):
        done = operated.deploy(versions["better"], *LOUD)
        assert done.returncode == 0, done.stdout[-4000:]
        assert operated.client().request("/v1/models")[0] == 200
    print(f"{client.answers} streamed requests in {time.monotonic() - began:.0f} s of a rolling update")
    assert not client.failures, (len(client.failures), client.failures[:5])
    assert client.answers >= 1000
    assert all(operated.release(name) != old[name] for name in operated.names)
    assert operated.all_work()
    with pytest.raises(AssertionError, match="401"):
        operated.ask(operated.first)


def test_wrong_keys_closed_paths_and_large_bodies_are_refused(operated):
    client = operated.client()
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
    monitor = operated.client(operated.keys["monitor"])
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


def test_slow_clients_block_nobody(operated):
    client = operated.client()
    slow = [half_sent(client, "Content-Length: 100000") for _ in range(50)]
    try:
        began = time.monotonic()
        for _ in range(10):
            client.ask()
        assert time.monotonic() - began < 10
    finally:
        for connection in slow:
            connection.close()


def test_only_ssh_and_the_gateway_are_reached_from_outside(operated):
    for name in operated.names:
        # Docker's own name server of the test network listens on an address of loopback.
        sockets = [line.split()[3] for line in operated.on(name, "ss -Hltn").splitlines()]
        outside = {socket for socket in sockets if not socket.startswith(("127.", "[::1]"))}
        watched = f"{operated.private_address(name)}:9999"
        assert {socket.rpartition(":")[2] for socket in outside - {watched}} == {"22", "8443"}, sockets
        address = operated.testbed.address(name)
        for port in (9090, 9093, 9100, 9999, 30000, 8500, 8501, 8502):
            with socket.socket() as probe:
                probe.settimeout(2)
                assert probe.connect_ex((address, port)) != 0, (name, port)


def found_on(operated: Operated, name: str, texts: list[str]) -> dict[str, set[str]]:
    """Text -> what on a host holds it: files, processes, units, images, containers and logs."""
    texts_file = "/dev/shm/texts"
    run("docker", "exec", "-i", name, "tee", texts_file, input="\n".join(texts))
    places = "/etc /root /home /tmp /run /usr/local /var/lib/sglang-ddtree /var/lib/prometheus /var/log"
    found = operated.on(name, f"grep -roHF --devices=skip -f {texts_file} {places} 2>/dev/null", check=False)
    seen = "ps -eo args; journalctl --no-pager; systemctl cat 'sglang*' --no-pager; "
    seen += "docker image inspect $(docker images -q); docker history --no-trunc $(docker images -q | head -n 1)"
    said = operated.on(name, f"rm {texts_file}; ({seen}) 2>/dev/null", check=False)
    pairs = {tuple(line.split(":", 1)) for line in found.splitlines()}
    pairs |= {("processes, logs, units or images", text) for text in texts if text in said}
    return {text: {place for place, word in pairs if word == text} for text in texts}


def test_no_secret_is_seen_but_where_it_is_used(operated):
    client, host = operated.client(), operated.first
    asked = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 8, "ignore_eos": True}
    assert client.request("/v1/chat/completions", BODY | asked)[0] == 200
    allowed = {word: set() for word in (*operated.secrets(), PROMPT)}
    # The container gets it in its environment, and its runtime's record of that is for root alone, too.
    runtime = f"{RUNTIME}/{operated.on(host, 'docker ps --quiet --no-trunc')}"
    assert operated.on(host, f"stat -c '%U %a' {runtime}") == "root 700"
    own = {operated.instances_key_file, f"{GATEWAY}/secrets.map", f"{HOME}/credentials.env", f"{runtime}/config.json"}
    allowed[operated.instances_key] = own
    allowed |= {operated.keys["router"]: {f"{GATEWAY}/secrets.map"}, operated.tls_key(): {f"{GATEWAY}/tls.pem"}}
    assert found_on(operated, host, list(allowed)) == allowed
    assert not {word for word in allowed if word in operated.said}
    assert operated.on(host, f"stat -c '%U %a' {GATEWAY}/*.*").splitlines() == ["root 600"] * 5


def test_a_key_that_was_taken_back_ends(operated, versions):
    """The list of keys, and the gateway that reads it again: nothing else of a deployed fleet changes."""
    client, host = operated.client(), operated.first
    old = operated.keys.pop("old alice")
    process = operated.on(host, "systemctl show --value --property=MainPID sglang-gateway")
    assert operated.client(old).request("/v1/models")[0] == 200
    operated.write_keys()
    with client.load(clients=2):
        said = operated.deploy(versions["better"], *LOUD)
    assert said.returncode == 0, said.stdout[-3000:]
    assert changed(said) == dict.fromkeys(operated.names, 2), said.stdout[-3000:]
    assert client.answers > 0 and not client.failures, client.failures[:5]
    assert operated.client(old).request("/v1/models")[0] == 401
    assert operated.client().request("/v1/models")[0] == 200
    assert operated.on(host, "systemctl show --value --property=MainPID sglang-gateway") == process


def test_a_host_that_dies_fails_no_request(operated, versions):
    client = operated.client()
    # The router's own host stays, so that the others have the load.
    ask = "import urllib.request as u, json; api = 'http://127.0.0.1:8500/workers'; "
    ask += "[u.urlopen(u.Request(api + '/' + w['id'], method='DELETE')) for w in json.load(u.urlopen(api))['workers'] "
    operated.on(operated.first, f"python3 -c \"{ask} if '/{operated.first}/' in w['url']]\"")
    time.sleep(2)
    assert operated.first not in operated.workers()
    with client.load(clients=4, least=100, streamed=False):
        time.sleep(5)
        log = operated.on(operated.first, "journalctl -u sglang-gateway --since -4s --output cat --no-pager")
        busy = max(operated.names[1:], key=lambda name: log.count(f"to=to-{name} "))
        assert log.count(f"to=to-{busy} ") > 10
        run("docker", "kill", busy)
        time.sleep(20)
    print(f"{client.answers} requests while {busy} died, {client.failures[:3]}")
    assert not client.failures, client.failures[:5]
    run("docker", "start", busy)
    operated.testbed.wait(busy)
    operated.write_inventory()
    done = operated.deploy(versions["better"])
    assert done.returncode == 0, done.stdout[-3000:]
    assert operated.all_work()
