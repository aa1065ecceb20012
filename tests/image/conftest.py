"""Image ring: needs a Docker engine, the built image and a running demo (`scripts/image-test.sh` brings all)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = os.environ.get("SGLANG_VERSION", "0.5.16")
IMAGE = os.environ.get("SGLANG_IMAGE") or f"sglang-ddtree:cpu-{VERSION}"
CACHE = Path(os.environ.get("CACHE_DIR", ROOT / ".cache"))


def docker(*arguments: str, seconds: int = 300) -> tuple[int, str]:
    """Exit code and everything that a docker command printed."""
    run = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=seconds)
    return run.returncode, run.stdout + run.stderr


def refused(*arguments: str) -> str:
    """Last line of a server that must not start; fails when it does."""
    code, said = docker("run", "--rm", *arguments)
    assert code != 0, f"the server ended with 0:\n{said[-2000:]}"
    return said.strip().splitlines()[-1]


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


@pytest.fixture
def models(tmp_path):
    """A copy of the fetched pair that a test may damage, mounted like the model volume."""
    pair = tmp_path / "models" / "smollm2-135m"
    for part in ("target", "drafter"):
        shutil.copytree(CACHE / "models" / "smollm2-135m" / part, pair / part, copy_function=link_or_copy)
    for path in [tmp_path, *tmp_path.parents][:4]:
        path.chmod(0o755)
    return tmp_path / "models"
