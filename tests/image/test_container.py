"""The running container is what the Compose file promises."""

import json
import subprocess

import pytest
import requests

from tests.image.conftest import IMAGE

LARGEST_IMAGE = 2.5e9


@pytest.fixture(scope="module")
def running():
    name = subprocess.check_output(["docker", "compose", "ps", "--quiet", "sglang"], text=True).strip()
    return json.loads(subprocess.check_output(["docker", "inspect", name], text=True))[0]


def test_the_image_is_small_enough_and_the_server_runs_the_series_on_its_label(running):
    image = json.loads(subprocess.check_output(["docker", "image", "inspect", IMAGE], text=True))[0]
    assert image["Size"] < LARGEST_IMAGE
    labels = image["Config"]["Labels"]
    assert labels["ddtree.sglang.version"] in IMAGE
    (binding,) = running["NetworkSettings"]["Ports"]["30000/tcp"]
    info = requests.get(f"http://127.0.0.1:{binding['HostPort']}/server_info", timeout=60).json()
    assert info["internal_states"][0]["ddtree_patches"] == labels["ddtree.patch.series"]


def test_the_server_has_no_privileges(running):
    host = running["HostConfig"]
    assert running["Config"]["User"].split(":")[0] not in ("", "0", "root")
    assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and not host["Privileged"]
    assert any("no-new-privileges" in option for option in host["SecurityOpt"])


def test_logs_are_bounded_and_the_port_is_on_loopback_only(running):
    assert running["HostConfig"]["LogConfig"]["Config"].keys() >= {"max-size", "max-file"}
    (binding,) = running["NetworkSettings"]["Ports"]["30000/tcp"]
    assert binding["HostIp"] == "127.0.0.1"


def test_health_is_a_real_completion(running):
    last = running["State"]["Health"]["Log"][-1]
    assert running["State"]["Health"]["Status"] == "healthy" and last["ExitCode"] == 0
    assert "healthcheck.py" in " ".join(running["Config"]["Healthcheck"]["Test"])
