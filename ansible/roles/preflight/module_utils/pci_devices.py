"""PCI devices as sysfs shows them, without lspci: what stands between GPUs is needed before anything is installed."""

from __future__ import annotations

import os
from pathlib import Path

NVIDIA, BRIDGE_CLASS, NVSWITCH_CLASS = "0x10de", "0x0604", "0x0680"
GPU_CLASSES = ("0x0300", "0x0302")
# PCI Express: extended capabilities follow the 256 bytes of the classic header.
EXTENDED, ACS_ID = 0x100, 0x000D
# Request and completion redirect: transfers between two devices go up to the root and the IOMMU.
ACS_REDIRECT = 0x04 | 0x08


def pci_devices(sys_root: str = "/sys") -> list[dict]:
    """Every device: `address`, `vendor` and `kind` (class without its last byte) as in 0x10de, bound `driver`,
    `iommu` (type of its group: DMA, DMA-FQ, identity, empty for none) and `acs_redirect`.
    """
    folder = Path(sys_root, "bus", "pci", "devices")
    return [_device(path) for path in sorted(folder.iterdir())] if folder.is_dir() else []


def gpus(devices: list[dict]) -> list[dict]:
    return [device for device in devices if device["vendor"] == NVIDIA and device["kind"] in GPU_CLASSES]


def has_nvswitch(devices: list[dict], sys_root: str = "/sys") -> bool:
    """Up to the fourth NVLink generation the switches are PCI devices. The fifth is managed through network cards
    that say so in their vital product data."""
    if any(device["vendor"] == NVIDIA and device["kind"] == NVSWITCH_CLASS for device in devices):
        return True
    cards = Path(sys_root, "class", "infiniband").glob("*/device/vpd")
    return any(b"SW_MNG" in _bytes(card) for card in cards)


def redirecting_bridges(devices: list[dict]) -> list[str]:
    return [device["address"] for device in devices if device["kind"] == BRIDGE_CLASS and device["acs_redirect"]]


def acs_redirects(config: bytes) -> bool:
    """Whether the configuration space of a device has ACS redirect on. Unprivileged readers see 64 bytes: False."""
    offset = EXTENDED
    seen = set()
    while EXTENDED <= offset <= len(config) - 8 and offset not in seen:
        seen.add(offset)
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header & 0xFFFF == ACS_ID:
            return bool(int.from_bytes(config[offset + 6 : offset + 8], "little") & ACS_REDIRECT)
        offset = header >> 20
    return False


def _device(path: Path) -> dict:
    return {
        "address": path.name,
        "vendor": _text(path / "vendor"),
        "kind": _text(path / "class")[:6],
        "driver": _link(path / "driver"),
        "iommu": _text(path / "iommu_group" / "type"),
        "acs_redirect": acs_redirects(_bytes(path / "config")),
    }


def _link(path: Path) -> str:
    return os.path.basename(os.readlink(path)) if path.is_symlink() else ""


def _text(path: Path) -> str:
    return _bytes(path).decode("ascii", "replace").strip()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
