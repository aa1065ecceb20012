"""Real hosts on one machine: containers with systemd, sshd and room for a Docker engine of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
IMAGE = "ddtree-testbed-host"
BOOT_S = 60
# What systemd and a Docker engine inside a container need, and no more: no --privileged. SYS_PTRACE is for health
# checks in containers of another user.
MACHINE = ["--cap-add=SYS_ADMIN", "--cap-add=NET_ADMIN", "--cap-add=SYS_PTRACE", "--security-opt=seccomp=unconfined"]
MACHINE += ["--cgroupns=private", "--tmpfs=/run", "--tmpfs=/run/lock"]


class TestbedError(Exception):
    """One sentence that says what failed."""

    __test__ = False


def run(*command: str | Path, check: bool = True, **options) -> subprocess.CompletedProcess:
    """Run a command with captured text; raises TestbedError with its last lines when it fails and `check` holds."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if check and done.returncode:
        raise TestbedError(f"{' '.join(map(str, command))}: {(done.stdout + done.stderr)[-2000:]}")
    return done


def cache() -> Path:
    return Path(os.environ.get("CACHE_DIR") or ROOT / ".cache")


class Testbed:
    """Hosts called PREFIX-h1, PREFIX-h2, ...; their key and inventory lie in the cache."""

    __test__ = False
    image = IMAGE
    network_options: tuple[str, ...] = ()

    def __init__(self, prefix: str):
        self.prefix = prefix
        self.folder = cache() / "testbed" / prefix
        self.inventory = self.folder / "inventory.yml"

    @property
    def names(self) -> list[str]:
        listed = run("docker", "ps", "--all", f"--filter=name=^{self.prefix}-h[0-9]+$", "--format={{.Names}}")
        return sorted(listed.stdout.split())

    @property
    def key(self) -> Path:
        return self.folder / "id_host"

    def up(self, count: int) -> list[str]:
        """Start `count` hosts, those that run already included, and write the inventory; returns their names."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.key.exists():
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key)
        self._build_images()
        if run("docker", "network", "inspect", self._network, check=False).returncode:
            run("docker", "network", "create", *self.network_options, self._network)
        for number in range(1, count + 1):
            name = f"{self.prefix}-h{number}"
            if name not in self.names:
                self.start(name)
        for name in self.names:
            self.wait(name)
        self.write_inventory()
        return self.names

    def start(self, name: str, *options: str) -> None:
        """Make one host and start it; its Docker engine gets a volume, as overlayfs cannot lie on overlayfs."""
        volume = f"--volume={name}-docker:/var/lib/docker"
        identity = [f"--name={name}", f"--hostname={name}", f"--network={self._network}"]
        run("docker", "run", "--detach", *identity, *MACHINE, volume, *options, self.image)

    def wait(self, name: str) -> None:
        """Wait until systemd has started everything; `degraded` is usual in a container."""
        deadline = time.monotonic() + BOOT_S
        while time.monotonic() < deadline:
            state = run("docker", "exec", name, "systemctl", "is-system-running", check=False).stdout.strip()
            if state in ("running", "degraded"):
                return
            time.sleep(0.5)
        raise TestbedError(f"{name} has not booted after {BOOT_S} s, systemd is {state or 'silent'}")

    def write_inventory(self, **variables) -> None:
        """An inventory of all hosts in the group cpu; `variables` are those of the group."""
        hosts = {name: {"ansible_host": self.address(name)} for name in self.names}
        ssh = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        login = {"ansible_user": "ops", "ansible_ssh_private_key_file": str(self.key), "ansible_ssh_common_args": ssh}
        group = {"hosts": hosts, "vars": login | variables}
        self.inventory.write_text(yaml.safe_dump({"all": {"children": {"cpu": group}}}), encoding="utf-8")

    def connect(self) -> None:
        """Put every host into a second network, the private one."""
        if run("docker", "network", "inspect", self.private, check=False).returncode:
            run("docker", "network", "create", self.private)
            for name in self.names:
                run("docker", "network", "connect", self.private, name)

    def address(self, name: str, network: str = "") -> str:
        form = f'{{{{(index .NetworkSettings.Networks "{network or self._network}").IPAddress}}}}'
        return run("docker", "inspect", f"--format={form}", name).stdout.strip()

    def on(self, name: str, command: str, check: bool = True) -> str:
        """Run a shell command as root on a host; returns what it printed."""
        return run("docker", "exec", name, "bash", "-c", command, check=check).stdout.strip()

    def down(self) -> None:
        """Remove the hosts with their volumes and network; the image and the key stay."""
        for name in self.names:
            run("docker", "rm", "--force", "--volumes", name)
            run("docker", "volume", "rm", "--force", f"{name}-docker")
        run("docker", "network", "rm", self._network, self.private, check=False)

    @property
    def private(self) -> str:
        return f"{self.prefix}-private"

    @property
    def _network(self) -> str:
        return f"{self.prefix}-net"

    def _build_images(self) -> None:
        self._build_machine(self.image)

    def _build_machine(self, image: str, suite: str = "bookworm") -> None:
        """A bare Debian host that knows this testbed's key."""
        script = ROOT / "scripts" / "base-image.sh"
        base = run(script, env=os.environ | {"DEBIAN_SUITE": suite}).stdout.splitlines()[-1]
        self._build(image, base, [HERE / "Dockerfile.host", HERE / "host-init", self.key.with_suffix(".pub")])

    def _build(self, image: str, base: str, parts: list[Path]) -> None:
        """Build `image` from files and folders, one of which is Dockerfile.host."""
        context = self.folder / "context" / image
        shutil.rmtree(context, ignore_errors=True)
        context.mkdir(parents=True)
        for part in parts:
            if part.is_dir():
                shutil.copytree(part, context / part.name)
            else:
                shutil.copy(part, context)
        command = ["docker", "build", "--quiet", "--tag", image, "--build-arg", f"BASE_IMAGE={base}"]
        run(*command, "--file", context / "Dockerfile.host", context, env=os.environ | {"DOCKER_BUILDKIT": "0"})
