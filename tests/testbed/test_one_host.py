"""Two instances, the operator's own Docker settings, and the units."""

import json

import pytest

from tests.testbed.conftest import changed

TWO = [{"name": "sglang-ddtree", "port": 30000}, {"name": "second", "port": 30001}]


def test_changing_one_instance_never_disturbs_the_other(serving, versions):
    host = serving.names[2]
    first = serving.started(host)
    with serving.clients(host):
        done = serving.deploy(versions["good"], "--limit", host, sglang_instances=TWO)
        assert done.returncode == 0, done.stdout[-3000:]
        narrower = [TWO[0], TWO[1] | {"max_running_requests": 2}]
        done = serving.deploy(versions["good"], "--limit", host, sglang_instances=narrower)
        assert done.returncode == 0, done.stdout[-3000:]
        serving.ask(host, port=30001)
        done = serving.deploy(versions["good"], "--limit", host)
        assert done.returncode == 0, done.stdout[-3000:]
    assert serving.started(host) == first
    # What the inventory does not name any more is gone, and the next run finds nothing to do.
    assert "sglang-second" not in serving.testbed.on(host, "docker ps --all --format '{{.Names}}'")
    assert serving.testbed.on(host, "systemctl is-enabled sglang@second.service || true") == "disabled"
    assert "second" not in serving.testbed.on(host, "ls /var/lib/sglang-ddtree /var/lib/sglang-ddtree/instances")
    assert any("retire second" in line for line in serving.audit(host))
    assert changed(serving.deploy(versions["good"], "--limit", host))[host] == 0


@pytest.mark.slow
def test_the_operators_docker_settings_stay(serving, versions):
    host = serving.names[2]
    mine = {"log-driver": "journald", "debug": True, "default-ulimits": {"nofile": {"Name": "nofile", "Soft": 1024}}}
    serving.testbed.on(host, f"echo '{json.dumps(mine)}' > /etc/docker/daemon.json")
    container = serving.started(host)
    done = serving.deploy(versions["good"], "--limit", host, docker_engine_options={"max-concurrent-downloads": 2})
    assert done.returncode == 0, done.stdout[-3000:]
    merged = json.loads(serving.testbed.on(host, "cat /etc/docker/daemon.json"))
    assert merged == mine | {"max-concurrent-downloads": 2}
    assert serving.started(host) == container

    serving.testbed.on(host, "echo '{' > /etc/docker/daemon.json")
    done = serving.deploy(versions["good"], "--limit", host)
    assert done.returncode != 0
    assert f"/etc/docker/daemon.json of {host} is no JSON" in done.stdout
    serving.testbed.on(host, f"echo '{json.dumps(merged)}' > /etc/docker/daemon.json")


@pytest.mark.slow
def test_the_units_are_sound_and_confined(serving):
    host = serving.names[0]
    for unit in ("sglang", "sglang-fallback"):
        serving.testbed.on(host, f"systemd-analyze verify {unit}@sglang-ddtree.service")
        serving.testbed.on(host, f"systemd-analyze security --threshold=30 {unit}@sglang-ddtree.service")
    said = serving.testbed.on(host, "docker inspect sglang-sglang-ddtree --format '{{json .HostConfig}}'")
    container = json.loads(said)
    assert container["ReadonlyRootfs"] and container["RestartPolicy"]["Name"] in ("", "no")
    assert container["PortBindings"]["30000/tcp"][0]["HostIp"] == "127.0.0.1"
    assert "/models:ro" in str(container["Binds"])


@pytest.mark.slow
def test_only_root_may_read_the_credentials(serving, versions):
    host = serving.names[0]
    serving.testbed.on(host, "install -m 0600 /dev/stdin /root/api-key <<<secret-of-the-test")
    instances = [{"name": "sglang-ddtree", "port": 30000, "api_key_file": "/root/api-key"}]
    done = serving.deploy(versions["good"], "--limit", host, "-vvv", sglang_instances=instances)
    assert "secret-of-the-test" not in done.stdout + done.stderr
    home = "/var/lib/sglang-ddtree/instances/sglang-ddtree"
    assert serving.testbed.on(host, f"stat -c '%U %a' {home}/credentials.env") == "root 600"
    assert serving.testbed.on(host, f"grep -rl secret-of-the-test {home}") == f"{home}/credentials.env"
