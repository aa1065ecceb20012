"""Whatever interrupts a roll-out or a server, running the same command again converges."""

import signal
import subprocess
import time

import pytest

from tests.testbed.conftest import environment
from tests.testbed.hosts import ROOT, run

pytestmark = pytest.mark.slow
LOCK = "/run/sglang-ddtree.lock"
IMAGES = "/var/lib/sglang-ddtree/images"
SWITCH = "Starting release"


def interrupted(fleet, version, host: str, act, **settings) -> str:
    """Start a roll-out of `version` to `host` and call `act` on its process at the switch; returns what it said."""
    command = fleet.command("site.yml", "--limit", host, sglang_image_archive=str(version), **settings)
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


def test_status_shows_how_far_a_start_is(serving, versions):
    host, shown = serving.names[1], []

    def look(_) -> None:
        # The version before may be drained first.
        while len(shown) < 6 and "serve: loading" not in "".join(shown):
            shown.append(serving.status())

    said = interrupted(serving, versions["never-ready"], host, look, instance_start_s=60)
    assert "serves again" in said
    lines = shown[-1].splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(host))
    assert " starting " in lines[at] and lines[at + 1].strip() == "serve: loading"


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


def test_a_connection_that_was_cut_in_mid_deployment(serving, versions):
    host = serving.names[1]
    cut = "systemctl stop ssh.service; pkill -KILL sshd"
    said = interrupted(serving, versions["better"], host, lambda _: serving.testbed.on(host, cut, check=False))
    assert "unreachable=1" in said or "failed=1" in said, said[-2000:]
    serving.testbed.on(host, "systemctl start ssh.service")
    assert_converges(serving, versions["better"], host)


@pytest.mark.parametrize("event", ["docker kill sglang-sglang-ddtree", "systemctl restart docker"])
def test_what_was_stopped_from_outside_comes_back(serving, event):
    host = serving.names[1]
    before = serving.started(host)
    serving.testbed.on(host, event)
    deadline = time.monotonic() + 120
    while serving.testbed.on(host, "systemctl is-active sglang@sglang-ddtree", check=False) != "active":
        assert time.monotonic() < deadline
        time.sleep(1)
    serving.ask(host)
    assert serving.started(host) != before


def assert_nothing_was_switched(fleet, host: str, before: tuple[str, str]) -> None:
    assert (fleet.release(host), fleet.started(host)) == before
    assert not fleet.testbed.on(host, f"cat {LOCK}", check=False)


def test_a_full_disk_stops_before_anything_is_switched(serving, versions):
    host = serving.names[1]
    before = serving.release(host), serving.started(host)
    # The folder that archives are sent to, with room for none.
    serving.testbed.on(host, f"mkdir -p {IMAGES} && mount -t tmpfs -o size=1m tmpfs {IMAGES}")
    with serving.clients(host):
        done = serving.deploy(versions["spare"], "--limit", host)
    assert done.returncode != 0
    assert f"{host} has 1 MB free in {IMAGES}" in done.stdout
    assert_nothing_was_switched(serving, host, before)
    serving.testbed.on(host, f"umount {IMAGES}")
    assert_converges(serving, versions["spare"], host)


def test_a_registry_that_is_gone_stops_before_anything_is_switched(serving):
    host = serving.names[1]
    before = serving.release(host), serving.started(host)
    gone = "127.0.0.1:5999/sglang-ddtree@sha256:" + 64 * "0"
    with serving.clients(host):
        done = serving.play("site.yml", "--limit", host, sglang_image=gone)
    assert done.returncode != 0
    assert "Pull the image" in done.stdout and "127.0.0.1:5999" in done.stdout
    assert_nothing_was_switched(serving, host, before)


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
