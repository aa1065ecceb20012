"""From a signed bundle to a served version where nothing can be fetched: control machine and host have no route out."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.conftest import CLIENT, PORT
from tests.testbed.hosts import ROOT, Testbed, cache, run

pytestmark = pytest.mark.slow

TAG = "sglang-ddtree:cpu-0.5.16"
KIT = "/root/kit"
# Asks the first of the machine's own package archives.
FETCH = """
import re, urllib.request, pathlib
text = "".join(path.read_text() for path in pathlib.Path("/etc/apt").rglob("*.list"))
text += "".join(path.read_text() for path in pathlib.Path("/etc/apt").rglob("*.sources"))
url = re.search(r"https?://[^ \\n]+", text)[0]
print(urllib.request.urlopen(url, timeout=20).status)
"""


class OfflineTestbed(Testbed):
    """A control machine (the first) that has the bundle and nothing else, and a bare host, cut off from any network."""

    network_options = ("--internal",)

    def __init__(self, prefix: str, bundle: Path):
        super().__init__(prefix)
        self.bundle = bundle

    def start(self, name: str, *options: str) -> None:
        bundle = [f"--volume={self.bundle.resolve()}:/bundle:ro"] if name.endswith("-h1") else []
        super().start(name, *bundle, *options)


def make_bundle(folder: Path, *options: str) -> Path:
    """A bundle signed with a key beside it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key")
    public = (folder / "key.pub").read_text(encoding="utf-8")
    (folder / "signers").write_text(f"maker@example.net {public}", encoding="utf-8")
    python = cache() / "tools" / "bin" / "python"
    environment = os.environ | {"CACHE_DIR": str(cache())}
    command = [python, "-m", "bundle", "--key", folder / "key", "--output", folder / "bundle", *options]
    print(run(*command, cwd=ROOT, env=environment).stdout)
    return folder / "bundle"


@pytest.fixture
def offline(request) -> Iterator[OfflineTestbed]:
    """Two hosts without a network, the first with the bundle of `request.param`'s image; removed at the end."""
    prefix = os.environ.get("TESTBED_PREFIX", "ddfleet") + "-offline"
    bundle = make_bundle(cache() / "testbed" / "bundle", "--image", request.getfixturevalue(request.param))
    hosts = OfflineTestbed(prefix, bundle)
    hosts.down()
    try:
        hosts.up(2)
        yield hosts
    finally:
        if not os.environ.get("TESTBED_KEEP"):
            hosts.down()
            shutil.rmtree(bundle.parent)


@pytest.fixture(scope="session")
def light_image(versions) -> str:
    return f"{TAG}={versions['good']}"


@pytest.fixture(scope="session")
def real_image() -> str:
    return TAG


def set_up(hosts: OfflineTestbed) -> tuple[str, str]:
    """Make the first host the control machine of the second; returns their names."""
    control, host = hosts.names
    for source, target in ((hosts.key, "/root/id_host"), (hosts.bundle.parent / "signers", "/root/signers")):
        run("docker", "cp", source, f"{control}:{target}")
    hosts.on(control, f"chown root /root/id_host /root/signers; /bundle/setup /root/signers {KIT}")
    login = "ansible_user=ops ansible_ssh_private_key_file=/root/id_host"
    ssh = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    line = f"[cpu]\n{host} ansible_host={hosts.address(host)} {login} ansible_ssh_common_args='{ssh}'"
    hosts.on(control, f"echo {line!r} | sed 's/\\\\n/\\n/' >{KIT}/inventory.ini")
    return control, host


def deploy(hosts: OfflineTestbed, control: str, *options: str) -> subprocess.CompletedProcess:
    names = ["offline=true", "bundle_dir=/bundle", "bundle_signers=/root/signers", *options]
    command = ["env", "LC_ALL=C.UTF-8", ".cache/tools/bin/ansible-playbook", "site.yml"]
    command += [word for name in names for word in ("-e", name)]
    return run("docker", "exec", "--workdir", KIT, control, *command, check=False)


@pytest.mark.parametrize("offline", ["light_image"], indirect=True)
def test_a_bundle_deploys_where_nothing_can_be_fetched(offline):
    control, host = set_up(offline)
    # The same question is answered on a network, so that its failure here says something.
    assert run("docker", "run", "--rm", offline.image, "python3", "-c", FETCH).stdout.strip() == "200"
    for name in (control, host):
        assert "URLError" in run("docker", "exec", name, "python3", "-c", FETCH, check=False).stderr

    done = deploy(offline, control)
    assert done.returncode == 0, done.stdout[-3000:]
    assert '"failures": []' in run("docker", "exec", host, "python3", "-c", CLIENT, str(PORT), "1").stdout
    assert offline.on(host, 'grep -o \'"verdict": "pass"\' /var/lib/sglang-ddtree/sglang-ddtree.json')


@pytest.mark.parametrize("offline", ["real_image"], indirect=True)
def test_the_real_image_deploys_from_a_bundle(offline):
    control, host = set_up(offline)
    done = deploy(offline, control, "instance_start_s=300")
    assert done.returncode == 0, done.stdout[-3000:]
    assert '"failures": []' in run("docker", "exec", host, "python3", "-c", CLIENT, str(PORT), "1").stdout
    again = deploy(offline, control, "instance_start_s=300")
    assert "changed=0" in again.stdout.split("PLAY RECAP")[-1], again.stdout[-3000:]
