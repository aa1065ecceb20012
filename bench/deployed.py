"""A deployed instance as the servers of a run: the roll-out changes it to each arm in turn, gate and all.

One arm runs at a time, so none take turns and no sign test is made; that is what servers side by side are for. At the
end the roll-out brings back what the inventory says.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bench.arms import Arm, Launch, engine_settings
from bench.errors import BenchError
from bench.progress import say
from bench.servers import Endpoint, free_ports

KIT = Path(__file__).resolve().parents[1]
TUNNEL_S = 20


class Deployed:
    """The same as a Fleet to its callers.

    where: HOST:INSTANCE. inventory: of Ansible, None for its default. logs: gets the playbook's output. Raises
    BenchError where the inventory has no such instance, or Ansible is missing.
    """

    launches: Mapping[str, Launch] = {}

    def __init__(self, where: str, inventory: Path | None, arms: Sequence[Arm], logs: Path) -> None:
        self.host, _, self.instance = where.partition(":")
        self._inventory = ["-i", str(inventory)] if inventory else []
        self._settings = {arm.name: engine_settings(arm) for arm in arms}
        self._logs, self._now, self._tunnel = logs, None, None
        self._facts = self._look()
        self._port = self._instance_port()

    def __enter__(self) -> Deployed:
        return self

    def __exit__(self, *_) -> None:
        self._close()
        if self._now is not None:
            say(f"{self.host}: back to the inventory's settings")
            self._play({})

    def groups(self, names: Iterable[str]) -> list[list[str]]:
        return [[name] for name in names]

    def up(self, names: Iterable[str]) -> dict[str, Endpoint]:
        """Roll the arm out unless it serves already. Raises BenchError when it does not pass."""
        (name,) = names
        if name != self._now:
            say(f"{self.host}: rolling out {name}")
            self._close()
            self._now = name
            self._play({self.instance: self._settings[name]})
        return {name: Endpoint(name, self._url())}

    def deployment(self) -> dict:
        """Where the arm was deployed and how it was set."""
        return {"host": self.host, "instance": self.instance, "settings": self._settings.get(self._now)}

    def _play(self, overrides: dict) -> None:
        command = [_tool("ansible-playbook"), "site.yml", *self._inventory, "-l", self.host]
        command += ["-e", json.dumps({"sglang_overrides": overrides})]
        with (self._logs / "roll-out.log").open("a") as log:
            done = subprocess.run(command, cwd=KIT, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise BenchError(f"{self.host} did not take {self._now or 'its settings'}: read {log.name}")

    def _look(self) -> dict:
        command = [_tool("ansible-inventory"), *self._inventory, "--host", self.host]
        done = subprocess.run(command, cwd=KIT, capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"--deploy {self.host}:{self.instance}: the inventory has no host {self.host}")
        return json.loads(done.stdout)

    def _instance_port(self) -> int:
        """As the roll-out sees it, with every template filled in."""
        command = [_tool("ansible"), self.host, *self._inventory, "--playbook-dir", "ansible", "-m", "debug"]
        command += ["-a", "var=sglang_resolved"]
        as_json = os.environ | {"ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
        done = subprocess.run(command, cwd=KIT, env=as_json, capture_output=True, text=True)
        _, _, answer = done.stdout.partition("=> ")
        found = json.loads(answer)["sglang_resolved"] if done.returncode == 0 else []
        for instance in found:
            if instance["name"] == self.instance:
                return int(instance["port"])
        names = ", ".join(instance["name"] for instance in found) or "none"
        raise BenchError(f"--deploy names {self.instance}, and {self.host} has the instances {names}: name one of them")

    def _url(self) -> str:
        if self._facts.get("ansible_connection") == "local":
            return f"http://127.0.0.1:{self._port}"
        if self._tunnel is None:
            (port,) = free_ports(1)
            self._tunnel = subprocess.Popen([*self._ssh(), "-N", "-L", f"{port}:127.0.0.1:{self._port}"])
            self._tunnelled = port
            self._await_tunnel()
        return f"http://127.0.0.1:{self._tunnelled}"

    def _ssh(self) -> list[str]:
        facts = self._facts
        address = facts.get("ansible_host", self.host)
        login = f"{facts['ansible_user']}@{address}" if "ansible_user" in facts else address
        key = ["-i", facts["ansible_ssh_private_key_file"]] if "ansible_ssh_private_key_file" in facts else []
        port = ["-p", str(facts["ansible_port"])] if "ansible_port" in facts else []
        return ["ssh", *facts.get("ansible_ssh_common_args", "").split(), *key, *port, login]

    def _await_tunnel(self) -> None:
        deadline = time.monotonic() + TUNNEL_S
        while time.monotonic() < deadline and self._tunnel.poll() is None:
            try:
                Endpoint(self.instance, f"http://127.0.0.1:{self._tunnelled}").info()
                return
            except BenchError:
                time.sleep(0.5)
        raise BenchError(f"no ssh tunnel to {self.host}, port {self._port}: try {' '.join(self._ssh())}")

    def _close(self) -> None:
        if self._tunnel:
            self._tunnel.terminate()
            self._tunnel.wait()
            self._tunnel = None


def _tool(name: str) -> str:
    tools = Path(os.environ.get("CACHE_DIR") or KIT / ".cache") / "tools" / "bin"
    found = shutil.which(name, path=os.pathsep.join([str(tools), os.environ["PATH"]]))
    if found is None:
        raise BenchError(f"--deploy needs {name}: run make tools")
    return found
