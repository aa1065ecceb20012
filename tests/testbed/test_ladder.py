"""A version that passed and then falls into a crash loop goes down tree, chain, ar, and says so."""

import time

import pytest

pytestmark = pytest.mark.slow
RUNG_S = 300
MODELS = "/var/lib/sglang-ddtree/models"
UNIT = "sglang@sglang-ddtree.service"


def wait_for(fleet, name: str, algorithm: str) -> None:
    """Wait until the instance serves with `algorithm`."""
    deadline = time.monotonic() + RUNG_S
    while time.monotonic() < deadline:
        served = fleet.testbed.on(name, "docker exec sglang-sglang-ddtree printenv DDTREE_ALGORITHM", check=False)
        if served == algorithm and fleet.testbed.on(name, f"systemctl is-active {UNIT}", check=False) == "active":
            return
        time.sleep(2)
    pytest.fail(f"{name} does not serve with {algorithm} after {RUNG_S} s: " + log(fleet, name))


def log(fleet, name: str) -> str:
    return fleet.testbed.on(name, "journalctl --priority crit --output cat")


def test_a_crash_loop_falls_down_the_ladder_and_a_roll_out_climbs_it(serving, versions):
    name = serving.names[0]
    serving.testbed.on(name, f"touch {MODELS}/crash-tree")
    wait_for(serving, name, "chain")
    assert "crash loop with tree: serving with chain from now on" in log(serving, name)
    serving.testbed.on(name, f"touch {MODELS}/crash-chain")
    wait_for(serving, name, "ar")
    assert "crash loop with chain: serving with ar from now on" in log(serving, name)
    serving.ask(name)
    status = serving.status()
    assert "FALLEN BACK to ar" in next(line for line in status.splitlines() if line.startswith(name))

    serving.testbed.on(name, f"rm {MODELS}/crash-*")
    done = serving.deploy(versions["good"], "--limit", name)
    assert done.returncode == 0, done.stdout[-3000:]
    wait_for(serving, name, "tree")
    assert "FALLEN" not in serving.status()


def test_without_a_rung_left_it_stays_down(serving, versions):
    name = serving.names[0]
    serving.testbed.on(name, f"touch {MODELS}/crash-tree {MODELS}/crash-chain {MODELS}/crash-ar")
    deadline = time.monotonic() + 3 * RUNG_S
    while "it stays down" not in log(serving, name):
        assert time.monotonic() < deadline, log(serving, name)
        time.sleep(5)
    assert serving.testbed.on(name, f"systemctl is-active {UNIT}", check=False) == "failed"
    serving.testbed.on(name, f"rm {MODELS}/crash-*")
    done = serving.deploy(versions["good"], "--limit", name)
    assert done.returncode == 0, done.stdout[-3000:]
    serving.ask(name)
