"""Test hosts that have GPUs as far as the roles can see: files describe the cards, packages bring the driver."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.testbed.gpu.packages import make_archive
from tests.testbed.hosts import Testbed, run

HERE = Path(__file__).resolve().parent
MACHINE_IMAGE, IMAGE = "ddtree-testbed-gpu-machine", "ddtree-testbed-gpu"
UUIDS = tuple(f"GPU-{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}" for digit in "1234")
GPU_CLASS, SWITCH_CLASS, BRIDGE_CLASS = "0x030200", "0x068000", "0x060400"
SECURE_BOOT = "efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@dataclass
class Hardware:
    """What a host has: H100 cards unless told otherwise."""

    gpus: int = 1
    hidden: int = 0  # on the bus, and out of the driver's reach
    capability: str = "9.0"
    memory_mib: int = 81559
    nvswitch: bool = False
    secure_boot: bool = False
    key_enrolled: bool = False
    processes: int = 0
    names: list[str] = field(default_factory=lambda: ["NVIDIA H100 80GB HBM3"])

    def cards(self) -> str:
        rows = [
            f"{index},{UUIDS[index]},{self.names[index % len(self.names)]},{self.capability},{self.memory_mib},Disabled"
            for index in range(self.gpus)
        ]
        return "".join(f"{row}\n" for row in rows)

    def devices(self) -> dict[str, str]:
        """PCI address to class."""
        found = {f"0000:{index + 1:02x}:00.0": GPU_CLASS for index in range(self.gpus + self.hidden)}
        return found | ({"0000:a0:00.0": SWITCH_CLASS} if self.nvswitch else {})


class GpuTestbed(Testbed):
    """As Testbed, with Debian 13 for an engine that knows CDI. `archive` is served inside each host."""

    image = IMAGE

    def __init__(self, prefix: str):
        super().__init__(prefix)
        self.archive = self.folder / "archive"

    def start(self, name: str, *options: str) -> None:
        # A reboot ends process 1; Docker then starts it again, as a machine's firmware would.
        super().start(name, "--restart=always", f"--volume={self.archive}:/srv/archive:ro", *options)

    def write_inventory(self, **variables) -> None:
        """An inventory of all hosts in the group sm90; `variables` are those of each host."""
        super().write_inventory()
        group = yaml.safe_load(self.inventory.read_text(encoding="utf-8"))["all"]["children"]["cpu"]
        archive = {"uri": "file:/srv/archive", "suites": "./", "key": str(self.archive / "key.asc")}
        archives = {"nvidia_driver_repository": archive, "container_toolkit_repository": archive}
        # The group's own variables stand in the kit's group_vars, which an inventory file cannot change.
        for host in group["hosts"].values():
            host |= archives | variables
        self.inventory.write_text(yaml.safe_dump({"all": {"children": {"sm90": group}}}), encoding="utf-8")

    def equip(self, name: str, hardware: Hardware) -> None:
        """Give a host its hardware, with nothing of NVIDIA installed and everything loaded that a boot would load."""
        folder = self.folder / "hardware" / name
        shutil.rmtree(folder, ignore_errors=True)
        for address, kind in hardware.devices().items():
            _put(folder / "pci" / address / "vendor", "0x10de\n")
            _put(folder / "pci" / address / "class", f"{kind}\n")
        _put(folder / "gpus.csv", hardware.cards())
        _put(folder / "compute-apps", "".join(f"{pid}\n" for pid in range(1000, 1000 + hardware.processes)))
        if hardware.secure_boot:
            _put(folder / "firmware" / SECURE_BOOT, "\6\0\0\0\1")
        if hardware.key_enrolled:
            _put(folder / "key-enrolled", "")
        self.on(name, "rm -rf /etc/hardware && mkdir -p /etc/hardware /lib/modules/$(uname -r)/kernel")
        run("docker", "cp", f"{folder}/.", f"{name}:/etc/hardware")
        self.on(name, "power-on")

    def strip(self, name: str) -> None:
        """Remove what an earlier test installed."""
        self.on(
            name,
            "apt-mark unhold $(apt-mark showhold) >/dev/null 2>&1; rm -f /etc/apt/preferences.d/nvidia-*"
            " /etc/apt/sources.list.d/nvidia-* /etc/apt/apt.conf.d/90nvidia-* /etc/modprobe.d/nvidia-*"
            " /etc/cdi/nvidia.yaml /etc/docker/daemon.json /var/lib/dkms/mok.pub;"
            " dpkg --purge --force-depends $(dpkg-query -Wf '${Package}\\n' 'nvidia-*' 'libnvidia-*' libcuda1"
            " 'cuda-drivers-*' 'linux-headers-*' 2>/dev/null) >/dev/null 2>&1; true",
        )

    def _build_images(self) -> None:
        make_archive(self.archive)
        self._build_machine(MACHINE_IMAGE, "trixie")
        self._build(self.image, MACHINE_IMAGE, [HERE / "Dockerfile.host", HERE / "host"])


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="latin-1")
