"""A bad version ends on the canary, which returns by itself; the other hosts never notice."""

import pytest

CASES = [
    pytest.param("garbage", {}, "did not pass its smoke tests", id="garbage"),
    pytest.param("broken", {}, "error while loading shared libraries", id="broken", marks=pytest.mark.slow),
    pytest.param("never-ready", {"instance_start_s": 15}, "does not serve", id="never-ready", marks=pytest.mark.slow),
    pytest.param("low", {}, "did not pass its smoke tests", id="low", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("version", "settings", "evidence"), CASES)
def test_a_bad_version_is_returned_by_the_canary(serving, versions, version, settings, evidence):
    canary, *others = serving.names
    good = serving.release(canary)
    untouched = {name: serving.started(name) for name in others}
    with serving.clients(*others):
        done = serving.deploy(versions[version], **settings)
    assert done.returncode != 0
    assert evidence in done.stdout
    assert f"release {good} serves again" in done.stdout
    assert serving.release(canary) == serving.release(canary, "good") == good
    serving.ask(canary)
    assert f"returned-to={good}" in serving.audit(canary)[-1]
    assert serving.record(canary)["deployment"]["release"] == good
    assert {name: serving.started(name) for name in others} == untouched


@pytest.mark.slow
def test_a_first_version_that_is_bad_is_stopped(fleet, testbed, versions):
    name = fleet.names[-1]
    testbed.on(name, "systemctl stop sglang@sglang-ddtree; rm -rf /var/lib/sglang-ddtree/instances", check=False)
    done = fleet.deploy(versions["broken"], "--limit", name)
    assert done.returncode != 0
    assert "is bad, nothing serves" in done.stdout
    assert testbed.on(name, "systemctl is-active sglang@sglang-ddtree", check=False) != "active"
    assert fleet.record(name)["smoke"]["verdict"] == "not run"
