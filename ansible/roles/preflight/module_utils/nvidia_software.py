"""The NVIDIA software of a host: driver, tools and packages, each as it is loaded or installed now."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

# A command's (exit code, stdout, stderr).
Run = Callable[[list], "tuple[int, str, str]"]

SMI_FIELDS = ("index", "uuid", "name", "compute_cap", "memory.total", "mig.mode.current")
TOOLKIT_PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
SECURE_BOOT = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# Where DKMS and Ubuntu keep the key that signs modules built on the host.
SIGNING_KEYS = ("/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der")
LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")


def loaded_driver(proc_root: str = "/proc") -> dict:
    """`version` of the kernel module that runs now (empty for none) and whether it is the `open` one."""
    try:
        text = Path(proc_root, "driver", "nvidia", "version").read_text(encoding="utf-8")
    except OSError:
        return {"version": "", "open": False}
    found = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)", text)
    return {"version": found.group(1) if found else "", "open": "Open Kernel Module" in text}


def driver_library() -> str:
    """Version of the installed libcuda, which must be that of the loaded module."""
    for folder in LIBRARY_FOLDERS:
        for path in sorted(Path(folder).glob("libcuda.so.*.*")):
            return path.name.removeprefix("libcuda.so.")
    return ""


def smi_gpus(run: Run) -> dict:
    """`gpus`: one dict per card that nvidia-smi lists, its fields as text. `error`: its message when it fails."""
    query = "--query-gpu=" + ",".join(SMI_FIELDS)
    code, output, errors = run(["nvidia-smi", query, "--format=csv,noheader,nounits"])
    if code != 0:
        return {"gpus": [], "error": (output + errors).strip() or "nvidia-smi is missing"}
    rows = [[field.strip() for field in line.split(",")] for line in output.splitlines() if line.strip()]
    return {"gpus": [dict(zip(SMI_FIELDS, row, strict=True)) for row in rows], "error": ""}


def gpu_processes(run: Run) -> int:
    """How many processes compute on the GPUs; 0 where nvidia-smi cannot tell."""
    code, output, _ = run(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"])
    return len(output.split()) if code == 0 else 0


def package_versions(run: Run, *patterns: str) -> dict:
    """Installed Debian packages that match: name to version."""
    form = "${db:Status-Status} ${Package} ${Version}\n"
    _, output, _ = run(["dpkg-query", "--show", f"--showformat={form}", *patterns])
    rows = [line.split() for line in output.splitlines()]
    return {row[1]: row[2] for row in rows if len(row) == 3 and row[0] == "installed"}


def fabric_manager(run: Run) -> dict:
    """Package `version` of the fabric manager (empty for none) and whether its service is `active`."""
    versions = package_versions(run, "nvidia-fabricmanager*")
    code, _, _ = run(["systemctl", "is-active", "--quiet", "nvidia-fabricmanager.service"])
    return {"version": next(iter(versions.values()), ""), "active": code == 0}


def secure_boot(run: Run, sys_root: str = "/sys") -> dict:
    """Whether Secure Boot is `enabled`, and whether a key that signs this host's own modules is `enrolled`."""
    try:
        # Four bytes of attributes, then the value.
        enabled = Path(sys_root, SECURE_BOOT).read_bytes()[4:5] == b"\1"
    except OSError:
        enabled = False
    keys = [key for key in SIGNING_KEYS if Path(key).is_file()] if enabled else []
    enrolled = any("already enrolled" in "".join(run(["mokutil", "--test-key", key])[1:]) for key in keys)
    return {"enabled": enabled, "enrolled": enrolled}


def kernels_without_module(module_root: str = "/lib/modules") -> list[str]:
    """Installed kernels that could boot and have no nvidia module."""
    kernels = [path for path in sorted(Path(module_root).glob("*")) if (path / "kernel").is_dir()]
    return [kernel.name for kernel in kernels if not any(kernel.rglob("nvidia.ko*"))]
