"""From bare hosts to a served version, and on to the next one."""

import shutil
import time

from tests.testbed.conftest import changed
from tests.testbed.hosts import cache


def kernels(fleet, name: str) -> tuple[str, str]:
    """What the last start on a host did about its kernel, and the content of the kernel caches there."""
    said = fleet.testbed.on(name, "journalctl -u sglang@sglang-ddtree --output cat | grep 'serve: kernel' | tail -n 1")
    sums = "cd /var/lib/sglang-ddtree/kernel-caches && find . -type f -exec sha256sum {} + | sort"
    return said.split()[-1], fleet.testbed.on(name, sums)


def test_bare_hosts_serve_after_one_command(fleet, versions):
    # What an earlier run has compiled for the same image would be brought to the canary as well.
    shutil.rmtree(cache() / "kernel-caches", ignore_errors=True)
    check = fleet.deploy(versions["good"], "--check")
    assert check.returncode == 0, check.stdout[-3000:]
    assert min(changed(check).values()) > 0
    assert "A real run installs docker.io" in check.stdout
    for name in fleet.names:
        assert not fleet.testbed.on(name, "ls /usr/bin/docker /var/lib/sglang-ddtree /etc/docker", check=False)

    began = time.monotonic()
    done = fleet.deploy(versions["good"])
    print(f"{len(fleet.names)} bare hosts in {time.monotonic() - began:.0f} s")
    assert done.returncode == 0, done.stdout[-3000:]
    assert kernels(fleet, fleet.names[0])[0] == "compiled"
    assert len({kernels(fleet, name)[1] for name in fleet.names}) == 1
    assert {kernels(fleet, name)[0] for name in fleet.names[1:]} == {"found"}
    for name in fleet.names:
        fleet.ask(name)
        record = fleet.record(name)
        assert record["deployment"]["supervisor"] == record["deployment"]["service_manager"] == "systemd"
        assert record["deployment"]["release"] == fleet.release(name) == fleet.release(name, "good")
        assert record["smoke"]["verdict"] == "pass"
        assert 2 < record["smoke"]["measured"]["accept_length"] < 5


def test_a_second_run_changes_nothing(serving, versions):
    def seen(name: str) -> tuple[str, str]:
        reloads = serving.testbed.on(name, "journalctl _PID=1 --output cat | grep -c ^Reloading", check=False)
        return serving.started(name), reloads

    before = {name: seen(name) for name in serving.names}
    for arguments in ([], ["--check"]):
        began = time.monotonic()
        done = serving.deploy(versions["good"], *arguments)
        print(f"an unchanged run {' '.join(arguments)} in {time.monotonic() - began:.0f} s")
        assert done.returncode == 0, done.stdout[-3000:]
        assert changed(done) == dict.fromkeys(serving.names, 0), done.stdout[-3000:]
    assert {name: seen(name) for name in serving.names} == before


def test_a_new_version_reaches_every_host_and_rolls_back(serving, versions):
    old = {name: serving.release(name) for name in serving.names}
    done = serving.deploy(versions["better"])
    assert done.returncode == 0, done.stdout[-3000:]
    new = {name: serving.release(name) for name in serving.names}
    assert all(new[name] != old[name] for name in serving.names)

    done = serving.play("ansible/rollback.yml", rollback_to="0123456789ab")
    assert done.returncode != 0
    assert "does not keep 0123456789ab of instance sglang-ddtree" in done.stdout
    assert {name: serving.release(name) for name in serving.names} == new

    done = serving.play("ansible/rollback.yml")
    assert done.returncode == 0, done.stdout[-3000:]
    assert {name: serving.release(name) for name in serving.names} == old
    for name in serving.names:
        serving.ask(name)
        assert "rollback sglang-ddtree" in serving.audit(name)[-1]
