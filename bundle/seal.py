"""The list of hashes and its signature, by OpenSSH, which every control machine has."""

from __future__ import annotations

import datetime
import json
import subprocess
from pathlib import Path

from bundle.errors import BundleError

NAMESPACE = "sglang-ddtree-bundle"


def check_key(key: Path) -> None:
    """Refuse a key that cannot sign, before hours of work. Raises BundleError."""
    command = ["ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", NAMESPACE]
    done = subprocess.run(command, input=b"", capture_output=True)
    if done.returncode:
        raise BundleError(f"--key {key} cannot sign ({done.stderr.decode().strip()}): make one with ssh-keygen")


def seal(bundle: Path, manifest: dict, key: Path) -> str:
    """Write manifest, list and signature; returns the key's fingerprint."""
    made = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    (bundle / "manifest.json").write_text(json.dumps({"made": made, **manifest}, indent=1) + "\n")
    files = sorted(str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_file())
    listed = subprocess.run(["sha256sum", "--", *files], cwd=bundle, capture_output=True, check=True)
    (bundle / "SHA256SUMS").write_bytes(listed.stdout)
    subprocess.run(["ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", NAMESPACE, bundle / "SHA256SUMS"], check=True)
    told = subprocess.run(["ssh-keygen", "-l", "-f", key], capture_output=True, text=True, check=True)
    return told.stdout.split()[1]
