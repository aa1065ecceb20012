"""What the kit reads from a GPU host, and which hosts it refuses for it."""

import importlib
import os
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "ansible" / "roles" / "preflight"
MATRIX = yaml.safe_load((ROOT / "ansible" / "compatibility.yml").read_text(encoding="utf-8"))
DRIVER = "580.95.05"
FIRST, SECOND = "GPU-11111111-1111-1111-1111-111111111111", "GPU-22222222-2222-2222-2222-222222222222"


def load(folder: str, name: str):
    sys.path.insert(0, str(ROLE / folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


pci = load("module_utils", "pci_devices")
software = load("module_utils", "nvidia_software")
judge = load("filter_plugins", "host_refusals")


def put(root: Path, address: str, kind: str, vendor: str = "0x10de", config: bytes = b"", driver: str = "") -> None:
    """One device as sysfs shows it."""
    folder = root / "bus" / "pci" / "devices" / address
    (folder / "iommu_group").mkdir(parents=True)
    for name, text in {"vendor": vendor, "class": kind, "iommu_group/type": "DMA-FQ"}.items():
        (folder / name).write_text(text + "\n", encoding="ascii")
    (folder / "config").write_bytes(config)
    if driver:
        os.symlink(f"/sys/bus/pci/drivers/{driver}", folder / "driver")


def config_space(control: int) -> bytes:
    """A header, an Advanced Error Reporting capability at 0x100, and Access Control Services at 0x220."""
    space = bytearray(4096)
    space[0x100:0x104] = (0x0001 | 1 << 16 | 0x220 << 20).to_bytes(4, "little")
    space[0x220:0x224] = (0x000D | 1 << 16).to_bytes(4, "little")
    space[0x226:0x228] = control.to_bytes(2, "little")
    return bytes(space)


def test_gpus_switches_and_bridges_are_told_apart(tmp_path):
    put(tmp_path, "0000:00:01.0", "0x060400", vendor="0x8086", config=config_space(0x1D))
    put(tmp_path, "0000:01:00.0", "0x030200", driver="nouveau")
    put(tmp_path, "0000:01:00.1", "0x040300")
    devices = pci.pci_devices(str(tmp_path))
    (gpu,) = pci.gpus(devices)
    assert (gpu["address"], gpu["driver"], gpu["iommu"]) == ("0000:01:00.0", "nouveau", "DMA-FQ")
    assert pci.redirecting_bridges(devices) == ["0000:00:01.0"]
    assert not pci.has_nvswitch(devices, str(tmp_path))


@pytest.mark.parametrize(
    ("control", "redirects"), [(0x1D, True), (0x04, True), (0x08, True), (0x13, False), (0, False)]
)
def test_acs_redirect_is_read_from_the_capability(control, redirects):
    assert pci.acs_redirects(config_space(control)) is redirects


@pytest.mark.parametrize("config", [b"", bytes(64), bytes(4096), b"\xff" * 4096])
def test_acs_of_a_device_without_it_is_off(config):
    assert pci.acs_redirects(config) is False


def test_switches_of_both_kinds_are_seen(tmp_path):
    put(tmp_path, "0000:03:00.0", "0x068000")
    assert pci.has_nvswitch(pci.pci_devices(str(tmp_path)), str(tmp_path))
    card = tmp_path / "class" / "infiniband" / "mlx5_4" / "device"
    card.mkdir(parents=True)
    (card / "vpd").write_bytes(b"\x82\x12\x00ConnectX-7 SW_MNG\x90")
    assert pci.has_nvswitch([], str(tmp_path))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build", ("580.95.05", True)),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12", ("535.183.01", False)),
        (None, ("", False)),
    ],
)
def test_loaded_driver_is_read(tmp_path, text, found):
    if text:
        (tmp_path / "driver" / "nvidia").mkdir(parents=True)
        (tmp_path / "driver" / "nvidia" / "version").write_text(text, encoding="ascii")
    driver = software.loaded_driver(str(tmp_path))
    assert (driver["version"], driver["open"]) == found


def test_secure_boot_is_read_from_the_firmware(tmp_path):
    variable = tmp_path / software.SECURE_BOOT
    variable.parent.mkdir(parents=True)
    variable.write_bytes(b"\6\0\0\0\1")
    assert software.secure_boot(lambda command: (0, "", ""), str(tmp_path))["enabled"]
    variable.write_bytes(b"\6\0\0\0\0")
    assert not software.secure_boot(lambda command: (0, "", ""), str(tmp_path))["enabled"]


def test_a_kernel_without_the_module_is_found(tmp_path):
    for release, module in {"6.1.0-1": "updates/dkms/nvidia.ko.xz", "6.1.0-2": "kernel/net.ko"}.items():
        path = tmp_path / release / module
        (tmp_path / release / "kernel").mkdir(parents=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert software.kernels_without_module(str(tmp_path)) == ["6.1.0-2"]


def card(index: int = 0, uuid: str = FIRST, **fields) -> dict:
    shown = {"index": str(index), "uuid": uuid, "name": "NVIDIA H100", "compute_cap": "9.0", "memory.total": "81559"}
    return shown | {"mig.mode.current": "Disabled"} | fields


def host(**parts) -> dict:
    """A right H100 host on PCI Express; `parts` change whole sections of it."""
    sections = {
        "pci": {"gpus": ["0000:01:00.0"], "nvswitch": False, "nouveau": False},
        "kernel": {"without_module": []},
        "driver": {"version": DRIVER, "library": DRIVER, "open": False},
        "smi": {"gpus": [card()], "error": ""},
        "toolkit": {"nvidia-container-toolkit": "1.18.2-1", "libnvidia-container1": "1.18.2-1"},
        "fabric_manager": {"version": "", "active": False},
    }
    return {name: section | parts.get(name, {}) for name, section in sections.items()}


def test_a_right_host_is_taken():
    assert judge.host_refusals(host(), "sm90", MATRIX) == []


def test_a_switch_is_taken_with_its_manager_of_the_same_version():
    found = host(pci={"nvswitch": True}, fabric_manager={"version": f"{DRIVER}-1", "active": True})
    assert judge.host_refusals(found, "sm90", MATRIX) == []


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"pci": {"gpus": []}}, "no NVIDIA GPU on the PCI bus"),
        ({"pci": {"nouveau": True}}, "nouveau holds the GPUs: reboot"),
        ({"driver": {"version": ""}}, "the NVIDIA kernel module is not loaded"),
        ({"driver": {"library": "580.126.09"}}, "reboot pending: kernel module 580.95.05 runs, library 580.126.09"),
        ({"driver": {"library": ""}}, "library none is installed"),
        ({"pci": {"gpus": ["a", "b"]}}, "2 NVIDIA GPUs are on the PCI bus and nvidia-smi lists 1: switch on Above 4G"),
        ({"smi": {"gpus": [], "error": "No devices were found"}}, "lists 0 (No devices were found)"),
        ({"smi": {"gpus": [card(compute_cap="12.0")]}}, "group sm90 holds compute capability 9.0, the host has NVIDIA"),
        ({"pci": {"nvswitch": True}}, "fabric manager none beside driver 580.95.05"),
        (
            {"pci": {"nvswitch": True}, "fabric_manager": {"version": "580.82.07-1", "active": True}},
            "fabric manager 580.82.07 beside driver 580.95.05",
        ),
        (
            {"pci": {"nvswitch": True}, "fabric_manager": {"version": f"{DRIVER}-1", "active": False}},
            "the fabric manager does not run",
        ),
        ({"toolkit": {"libnvidia-container1": "1.17.8-1"}}, "packages differ (libnvidia-container1 1.17.8-1, nvidia-"),
        ({"kernel": {"without_module": ["6.12.2"]}}, "kernel 6.12.2 is installed without the NVIDIA module"),
    ],
)
def test_a_host_that_cannot_serve_is_refused(parts, message):
    reasons = judge.host_refusals(host(**parts), "sm90", MATRIX)
    assert len(reasons) == 1
    assert message in reasons[0]


TWO = {"gpus": [card(), card(1, SECOND, name="NVIDIA RTX 5090", compute_cap="12.0")]}


@pytest.mark.parametrize(
    ("gpus", "smi", "message"),
    [
        ([SECOND], {}, f"instance one names GPU {SECOND}: set gpus to some of {FIRST}"),
        (["4"], {}, "instance one names GPU 4"),
        ([FIRST, SECOND], TWO, "spans GPUs of compute capability 12.0 and 9.0: set gpus to cards of one kind"),
        (["0"], {"gpus": [card(**{"mig.mode.current": "Enabled"})]}, "which is split by MIG"),
    ],
)
def test_an_instance_gets_no_gpu_that_is_not_there(gpus, smi, message):
    reasons = judge.device_refusals(host(smi=smi), [{"name": "one", "gpus": gpus}])
    assert len(reasons) == 1
    assert message in reasons[0]


def test_gpus_are_found_by_index_and_by_uuid():
    found = host(smi=TWO)
    assert judge.device_refusals(found, [{"name": "one", "gpus": [0]}, {"name": "two", "gpus": [SECOND]}]) == []
    assert judge.smallest_gib(found, {"gpus": [0]}) == pytest.approx(79.6, abs=0.1)
