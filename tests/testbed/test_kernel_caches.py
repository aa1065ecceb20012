"""A host starts with what the canary compiled, and a cache goes only when no version that is kept needs it."""

import pytest

pytestmark = pytest.mark.slow
HOME = "/var/lib/sglang-ddtree/kernel-caches"


def caches(fleet, name: str) -> list[str]:
    return fleet.testbed.on(name, f"ls {HOME}").split()


def key(fleet, name: str) -> str:
    return "cpu-none-" + fleet.record(name)["deployment"]["image"].removeprefix("sha256:")[:12]


def said(fleet, name: str) -> str:
    return fleet.testbed.on(name, "journalctl -u sglang@sglang-ddtree --output cat | grep 'serve: kernel' | tail -n 1")


def test_a_bad_version_leaves_the_cache_of_the_good_one(serving, versions):
    canary = serving.names[0]
    good = key(serving, canary)
    done = serving.deploy(versions["garbage"])
    assert done.returncode != 0
    assert good in caches(serving, canary) and key(serving, canary) == good
    assert said(serving, canary) == "serve: kernel found"


def test_a_new_version_removes_old_caches_once_it_has_passed(serving, versions):
    old = {name: key(serving, name) for name in serving.names}
    done = serving.deploy(versions["better"], instance_keep=1)
    assert done.returncode == 0, done.stdout[-3000:]
    for name in serving.names:
        assert caches(serving, name) == [key(serving, name)] != [old[name]]
    kernel = {serving.testbed.on(name, f"sha256sum {HOME}/*/.cache/light/kernel").split()[0] for name in serving.names}
    assert len(kernel) == 1


def test_a_host_that_lost_its_cache_gets_the_kept_one(serving, versions):
    name = serving.names[1]
    path = f"{HOME}/{key(serving, name)}/.cache/light/kernel"
    kernel = serving.testbed.on(name, f"sha256sum {path}")
    serving.testbed.on(name, f"rm -r {HOME}")
    done = serving.deploy(versions["good"], "--limit", name)
    assert done.returncode == 0, done.stdout[-3000:]
    assert serving.testbed.on(name, f"sha256sum {path}") == kernel
