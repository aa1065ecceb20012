"""A signed apt archive of packages that are called, versioned and related as NVIDIA's are, and hold almost nothing."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import format_datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
DRIVERS = ("580.82.07", "580.95.05", "580.126.09", "590.44.01")
TOOLKITS = ("1.16.1", "1.17.8", "1.18.2", "1.19.1")
LIBRARIES = "/usr/lib/x86_64-linux-gnu"

# What DKMS does: builds the module for each kernel whose headers are there.
BUILD_MODULE = """#!/bin/sh
for kernel in /lib/modules/*/kernel; do
    release=$(basename "$(dirname "$kernel")")
    [ -d "/usr/src/linux-headers-$release" ] || continue
    mkdir -p "/lib/modules/$release/updates/dkms"
    echo "NVRM version: NVIDIA UNIX {kind}  {version}  Release Build" \
        > "/lib/modules/$release/updates/dkms/nvidia.ko"
done
"""
REMOVE_MODULE = "#!/bin/sh\nrm -f /lib/modules/*/updates/dkms/nvidia.ko\n"
SERVICE = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"


@dataclass
class Package:
    """`files` maps paths to contents, or to files to copy; `scripts` are maintainer scripts."""

    name: str
    version: str
    depends: str = ""
    conflicts: str = ""
    files: dict[str, str | Path] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)


def driver_packages(version: str) -> list[Package]:
    branch, full = version.split(".")[0], f"{version}-1"
    common = f"libcuda1 (= {full}), nvidia-smi (= {full}), nvidia-persistenced (= {full})"
    kinds = {
        "nvidia-kernel-open-dkms": "Open Kernel Module for x86_64",
        "nvidia-kernel-dkms": "x86_64 Kernel Module",
    }
    modules = [
        Package(
            name,
            full,
            conflicts=", ".join(other for other in kinds if other != name),
            scripts={"postinst": BUILD_MODULE.format(kind=kind, version=version), "prerm": REMOVE_MODULE},
        )
        for name, kind in kinds.items()
    ]
    return [
        *modules,
        Package(f"nvidia-open-{branch}", full, depends=f"nvidia-kernel-open-dkms (= {full}), {common}"),
        Package(f"cuda-drivers-{branch}", full, depends=f"nvidia-kernel-dkms (= {full}), {common}"),
        Package("libcuda1", full, files={f"{LIBRARIES}/libcuda.so.{version}": version}),
        Package("nvidia-smi", full, files={"/usr/bin/nvidia-smi": HERE / "host" / "nvidia-smi"}),
        _service("nvidia-persistenced", "nvidia-persistenced", full),
        _service(f"nvidia-fabricmanager-{branch}", "nvidia-fabricmanager", full),
    ]


def toolkit_packages(version: str) -> list[Package]:
    full = f"{version}-1"
    return [
        Package("nvidia-container-toolkit", full, depends="nvidia-container-toolkit-base, libnvidia-container-tools"),
        Package("nvidia-container-toolkit-base", full, files={"/usr/bin/nvidia-ctk": HERE / "host" / "nvidia-ctk"}),
        Package("libnvidia-container-tools", full, depends="libnvidia-container1"),
        Package("libnvidia-container1", full),
    ]


def headers() -> Package:
    release = os.uname().release
    return Package(f"linux-headers-{release}", "1", files={f"/usr/src/linux-headers-{release}/Makefile": ""})


def make_archive(folder: Path) -> Path:
    """Write a flat archive into `folder`, signed; returns its public key, ASCII-armoured."""
    folder.mkdir(parents=True, exist_ok=True)
    # Emptied and not made anew: a running host has this very folder mounted.
    for path in folder.iterdir():
        path.unlink()
    packages = [headers()]
    packages += [package for version in DRIVERS for package in driver_packages(version)]
    packages += [package for version in TOOLKITS for package in toolkit_packages(version)]
    index = "\n".join(_build(package, folder) for package in packages)
    (folder / "Packages").write_text(index, encoding="utf-8")
    digest = hashlib.sha256(index.encode()).hexdigest()
    date = format_datetime(datetime.now(timezone.utc), usegmt=True)
    release = f"Suite: test\nDate: {date}\nSHA256:\n {digest} {len(index.encode())} Packages\n"
    return _sign(folder, release)


def _service(package: str, unit: str, version: str) -> Package:
    scripts = {"postinst": "#!/bin/sh\nsystemctl daemon-reload\n"}
    return Package(package, version, files={f"/usr/lib/systemd/system/{unit}.service": SERVICE}, scripts=scripts)


def _build(package: Package, folder: Path) -> str:
    """Build one package into `folder`; returns its paragraph of the index."""
    fields = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": "amd64",
        "Maintainer": "Test <test@example.net>",
        "Description": "stands in for a package of NVIDIA",
        "Depends": package.depends,
        "Conflicts": package.conflicts,
    }
    control = "".join(f"{name}: {value}\n" for name, value in fields.items() if value)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "root")
        _put(root / "DEBIAN" / "control", control, 0o644)
        for name, text in package.scripts.items():
            _put(root / "DEBIAN" / name, text, 0o755)
        for path, content in package.files.items():
            text = content.read_text(encoding="utf-8") if isinstance(content, Path) else content
            _put(root / path.lstrip("/"), text, 0o755 if isinstance(content, Path) else 0o644)
        target = folder / f"{package.name}_{package.version}.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Znone", "--build", root, target], check=True, stdout=subprocess.DEVNULL
        )
    data = target.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return f"{control}Filename: ./{target.name}\nSize: {len(data)}\nSHA256: {digest}\n"


def _put(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _sign(folder: Path, release: str) -> Path:
    key = folder / "key.asc"
    with tempfile.TemporaryDirectory() as home:
        gpg = ["gpg", "--homedir", home, "--batch", "--quiet", "--yes"]
        subprocess.run([*gpg, "--passphrase", "", "--quick-gen-key", "test@example.net", "rsa2048"], check=True)
        subprocess.run([*gpg, "--armor", "--export", "--output", key], check=True)
        signed = subprocess.run([*gpg, "--clearsign"], input=release.encode(), check=True, capture_output=True)
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "gpg-agent"], check=True)
    (folder / "InRelease").write_bytes(signed.stdout)
    return key
