"""Three real hosts for the roll-out tests (`make testbed`); they need root, a Docker engine and about 3 GB of disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.testbed.hosts import ROOT, Testbed, TestbedError, cache, run
from tests.testbed.versions import archive

PORT = 30000
CLIENT = (Path(__file__).parent / "client.py").read_text(encoding="utf-8")
# A light server is up within seconds; a machine that is busy with other tests needs more.
START_S = 60
OPERATIONS = ("gateway", "monitoring", "day_two")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "testbed: deploys to real hosts in containers, takes minutes")
    config.addinivalue_line("markers", "slow: left out of `make test`")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.testbed)
            # The operations alone take half an hour.
            if {here / "gpu", here / "operations"} & set(item.path.parents):
                item.add_marker(pytest.mark.slow)
    # Bare hosts are bare only once, and who takes the kit off them comes last.
    order = {here / "test_rollout.py": -1}
    order |= {here / "operations" / f"test_{name}.py": at for at, name in enumerate(OPERATIONS, 1)}
    items.sort(key=lambda item: order.get(item.path, 0))


@pytest.fixture(scope="session")
def testbed() -> Iterator[Testbed]:
    """Three bare hosts, removed at the end. With TESTBED_KEEP they stay, and those of the
    last time are used; TESTBED_PREFIX names others, so that two checkouts can test side by side."""
    if shutil.which("docker") is None:
        pytest.fail("no Docker engine here: run scripts/docker-engine.sh")
    hosts = Testbed(os.environ.get("TESTBED_PREFIX", "ddfleet"))
    keep = bool(os.environ.get("TESTBED_KEEP"))
    if not keep:
        hosts.down()
    hosts.up(3)
    yield hosts
    if not keep:
        hosts.down()


class Fleet:
    """The kit, used as an operator would: an inventory, ansible-playbook, and what it says."""

    def __init__(self, testbed: Testbed):
        self.testbed = testbed
        self.names = testbed.names
        self.tools = cache() / "tools" / "bin"

    def command(self, playbook: str, *arguments: str, **variables) -> list[str]:
        inventory = ["-i", str(self.testbed.inventory)]
        settings = {"instance_start_s": START_S, "instance_drain_s": 10} | variables
        return [str(self.tools / "ansible-playbook"), playbook, *inventory, "-e", json.dumps(settings), *arguments]

    def play(self, playbook: str, *arguments: str, **variables) -> subprocess.CompletedProcess:
        """Run a playbook to its end; `variables` are extra variables."""
        command = self.command(playbook, *arguments, **variables)
        return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=1800)

    def deploy(self, version: Path, *arguments: str, **variables) -> subprocess.CompletedProcess:
        return self.play("site.yml", *arguments, sglang_image_archive=str(version), **variables)

    def ask(self, name: str, port: int = PORT) -> None:
        """One completion, on the host itself, where the port is; fails when none or a wrong one comes."""
        seen = json.loads(run(*self._client(name, port), "1").stdout)
        assert not seen["failures"], f"{name}: {seen['failures']}"

    def serves(self, name: str, version: Path) -> bool:
        """Whether the host has settled on this version and answers."""
        image = json.loads(run("tar", "-xOf", version, "manifest.json").stdout)[0]["Config"]
        try:
            record, links = self.record(name), {self.release(name), self.release(name, "good")}
            self.ask(name)
        except (TestbedError, AssertionError):
            return False
        digest = record["deployment"]["image"].removeprefix("sha256:")
        return digest in image and links == {record["deployment"]["release"]}

    def record(self, name: str, instance: str = "sglang-ddtree") -> dict:
        return json.loads(self.testbed.on(name, f"cat /var/lib/sglang-ddtree/{instance}.json"))

    def release(self, name: str, link: str = "current", instance: str = "sglang-ddtree") -> str:
        home = f"/var/lib/sglang-ddtree/instances/{instance}"
        return self.testbed.on(name, f"basename $(readlink {home}/{link})")

    def started(self, name: str, instance: str = "sglang-ddtree") -> str:
        """When the instance's container was started: another value after every restart."""
        return self.testbed.on(name, f"docker inspect --format '{{{{.State.StartedAt}}}}' sglang-{instance}")

    def status(self) -> str:
        """What `make status` prints."""
        done = self.play("ansible/status.yml")
        assert done.returncode == 0, done.stdout[-3000:]
        return (cache() / "status.txt").read_text(encoding="utf-8")

    def audit(self, name: str) -> list[str]:
        return self.testbed.on(name, "cat /var/lib/sglang-ddtree/audit.log").splitlines()

    @contextmanager
    def clients(self, *hosts: str, port: int = PORT) -> Iterator[None]:
        """A client on each host asks all the time meanwhile; at the end none may have seen a failed request."""
        running = {}
        for name in hosts:
            command = self._client(name, port)
            running[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            yield
        finally:
            seen = {name: json.loads(client.communicate()[0]) for name, client in running.items()}
        for name, said in seen.items():
            assert said["answers"] > 0 and not said["failures"], f"{name}: {said}"

    def _client(self, name: str, port: int) -> list[str]:
        return ["docker", "exec", "-i", name, "python3", "-c", CLIENT, str(port)]


def environment() -> dict[str, str]:
    return os.environ | {"LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1", "CACHE_DIR": str(cache())}


def changed(done: subprocess.CompletedProcess) -> dict[str, int]:
    """Host -> number of changed tasks, from the recap."""
    recap = done.stdout.split("PLAY RECAP")[-1].splitlines()
    lines = [line.split() for line in recap if " changed=" in line]
    return {words[0]: int(word.removeprefix("changed=")) for words in lines for word in words if "changed=" in word}


@pytest.fixture(scope="session")
def versions() -> dict[str, Path]:
    """Archives of the light versions by name."""
    faults = {
        "good": "",
        "better": "",
        "spare": "",
        "broken": "broken",
        "garbage": "LoopWithExcellentAcceptance",
        "low": "DrafterOnWrongLayers",
        "never-ready": "never-ready",
    }
    return {name: archive(name, fault, note=name) for name, fault in faults.items()}


@pytest.fixture(scope="session")
def fleet(testbed) -> Fleet:
    return Fleet(testbed)


@pytest.fixture
def serving(fleet, versions) -> Fleet:
    """The fleet with the good version on every host; what a test before this one left is put right."""
    if not all(fleet.serves(name, versions["good"]) for name in fleet.names):
        done = fleet.deploy(versions["good"])
        assert done.returncode == 0, done.stdout[-3000:]
    return fleet
