"""One host for all tests of the GPU roles; each test gives it other hardware and starts from a bare system."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.testbed.gpu.hosts import UUIDS, GpuTestbed, Hardware
from tests.testbed.hosts import ROOT, cache

CUDA = {"block_size": 8, "budget": 15, "top_k": 8, "max_running_requests": 8, "max_total_tokens": 65536}


class Prepared:
    """The host, and the playbook that prepares it."""

    def __init__(self, testbed: GpuTestbed, ansible_playbook: str):
        self.testbed, self.ansible_playbook = testbed, ansible_playbook
        (self.name,) = testbed.names
        self.pairs = testbed.folder / "pairs"
        shutil.rmtree(self.pairs, ignore_errors=True)
        shutil.copytree(ROOT / "models" / "pairs", self.pairs)
        # No pair of the registry is validated for GPUs; the roles need one that is.
        path = self.pairs / "smollm2-135m.yaml"
        pair = yaml.safe_load(path.read_text(encoding="utf-8"))
        pair["engine"]["cuda"] = pair["engine"]["cpu"] | CUDA
        path.write_text(yaml.safe_dump(pair), encoding="utf-8")

    def reset(self, hardware: Hardware) -> None:
        self.testbed.strip(self.name)
        self.testbed.equip(self.name, hardware)

    def on(self, command: str, check: bool = True) -> str:
        return self.testbed.on(self.name, command, check=check)

    def play(self, *options: str, gpus: int = 1, **variables) -> subprocess.CompletedProcess:
        """Run ansible/gpu_hosts.yml with one instance on the first `gpus` cards; `variables` are the host's."""
        instance = {"name": "one", "port": 30000, "pair": "smollm2-135m", "gpus": list(UUIDS[:gpus]), "pp": gpus}
        instance["algorithm"] = "tree" if gpus == 1 else "ar"
        self.testbed.write_inventory(**{"sglang_instances": [instance]} | variables)
        command = [self.ansible_playbook, "ansible/gpu_hosts.yml", "-i", str(self.testbed.inventory)]
        command += ["-e", f"_preflight_pairs_folder={self.pairs}", *options]
        environment = os.environ | {"LC_ALL": "C.UTF-8", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)

    def role(self, name: str, tasks_from: str = "main", **variables) -> subprocess.CompletedProcess:
        """Run one entry point of a role alone, in the place of a playbook of the kit."""
        command = [str(Path(self.ansible_playbook).with_name("ansible")), "sm90", "-i", str(self.testbed.inventory)]
        command += ["--playbook-dir", "ansible", "-m", "ansible.builtin.include_role"]
        command += ["-a", f"name={name} tasks_from={tasks_from}", "-e", json.dumps(variables)]
        environment = os.environ | {"LC_ALL": "C.UTF-8"}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)


@pytest.fixture(scope="session")
def gpu_host():
    """Skips where no hosts can be made."""
    tools = [str(cache() / "tools" / "bin"), os.environ["PATH"]]
    ansible_playbook = shutil.which("ansible-playbook", path=os.pathsep.join(tools))
    docker = shutil.which("docker") and subprocess.run(["docker", "info"], capture_output=True).returncode == 0
    if not (ansible_playbook and docker):
        complaint = pytest.fail if os.environ.get("CI") else pytest.skip
        complaint("the testbed needs ansible-playbook (make tools) and a Docker engine")
    testbed = GpuTestbed("ddgpu")
    testbed.up(1)
    yield Prepared(testbed, ansible_playbook)
    if not os.environ.get("TESTBED_KEEP"):
        testbed.down()
