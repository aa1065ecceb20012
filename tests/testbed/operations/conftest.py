"""The three hosts as operators have them, from one run of site.yml."""

import time

import pytest

from tests.testbed.operations.fleet import Operated


@pytest.fixture(scope="session")
def operated(testbed, versions) -> Operated:
    """The good version behind gateways and a router, watched by the first host."""
    fleet = Operated(testbed)
    done = fleet.play("ansible/certificates.yml")
    assert done.returncode == 0, done.stdout[-3000:]
    began = time.monotonic()
    done = fleet.deploy(versions["good"])
    print(f"gateways, a router and monitoring on {len(fleet.names)} hosts in {time.monotonic() - began:.0f} s")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    return fleet
