"""Whatever interrupts a roll-out or a server, running the same command again converges."""

import signal
import subprocess
import time

from tests.testbed.conftest import environment
from tests.testbed.hosts import ROOT, run

LOCK = "/run/sglang-ddtree.lock"
SWITCH = "Drain, stop, start"


def interrupted(fleet, version, host: str, act) -> str:
    """Start a roll-out of `version` to `host` and call `act` on its process at the switch; returns what it said."""
    command = fleet.command("site.yml", "--limit", host, sglang_image_archive=str(version))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=ROOT, env=environment(), text=True, start_new_session=True, **pipes) as process:
        said = ""
        for line in process.stdout:
            said += line
            if SWITCH in line:
                time.sleep(1)
                act(process)
                break
        return said + process.communicate(timeout=600)[0]


def assert_converges(fleet, version, host: str) -> None:
    done = fleet.deploy(version, "--limit", host)
    assert done.returncode == 0, done.stdout[-3000:]
    assert fleet.release(host) == fleet.release(host, "good")
    fleet.ask(host)


def test_an_interrupted_run_is_repeated(serving, versions):
    host = serving.names[1]
    interrupted(serving, versions["better"], host, lambda process: process.send_signal(signal.SIGINT))
    assert serving.testbed.on(host, f"cat {LOCK}"), "the interrupted run is meant to leave its lock"
    assert_converges(serving, versions["better"], host)
    assert not serving.testbed.on(host, f"cat {LOCK}", check=False)


def test_a_host_that_died_in_mid_deployment_is_deployed(serving, versions):
    host = serving.names[1]
    said = interrupted(serving, versions["better"], host, lambda _: run("docker", "kill", host))
    assert "unreachable=1" in said or "failed=1" in said, said[-2000:]
    run("docker", "start", host)
    serving.testbed.wait(host)
    serving.testbed.write_inventory()
    assert_converges(serving, versions["better"], host)


def test_a_killed_container_comes_back(serving):
    host = serving.names[1]
    before = serving.started(host)
    serving.testbed.on(host, "docker kill sglang-sglang-ddtree")
    deadline = time.monotonic() + 120
    while serving.testbed.on(host, "systemctl is-active sglang@sglang-ddtree", check=False) != "active":
        assert time.monotonic() < deadline
        time.sleep(1)
    serving.ask(host)
    assert serving.started(host) != before


def test_a_second_operator_is_kept_out(serving, versions):
    canary, other, _ = serving.names
    before = serving.release(canary)
    serving.testbed.on(other, f"echo 'eve@elsewhere 4711' > {LOCK}")
    done = serving.deploy(versions["better"])
    assert done.returncode != 0
    assert f"{other} is being changed by eve@elsewhere 4711" in done.stdout
    assert serving.release(canary) == before
    assert not serving.testbed.on(canary, f"cat {LOCK}", check=False)
    done = serving.deploy(versions["good"], lock_break=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert not serving.testbed.on(other, f"cat {LOCK}", check=False)
