"""Light images with one fault or none, as archives that the roll-out loads like any other."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.testbed.hosts import ROOT, cache, run

HERE = Path(__file__).resolve().parent / "light"
# What the image takes from the kit; the first three are all that the model tools need.
KIT = {
    "models": "models",
    "docker/entrypoint.py": "entrypoint.py",
    "versions.yaml": "versions.yaml",
    "tests/__init__.py": "tests/__init__.py",
    "tests/fault_server": "tests/fault_server",
    "tests/testbed/light/serve.py": "serve.py",
    "tests/testbed/light/healthcheck.py": "healthcheck.py",
}
WHEELS = ("gguf-", "numpy-", "pyyaml-", "tqdm-", "requests-")


def archive(name: str, fault: str = "", note: str = "") -> Path:
    """Build the light version `name` with `fault` and save it; `note` only makes it another image. Returns the file."""
    folder = cache() / "testbed" / "versions"
    context = folder / "context"
    _stage(context)
    tag = f"ddtree-testbed-light:{name}"
    base = run(ROOT / "scripts" / "base-image.sh").stdout.splitlines()[-1]
    arguments = [f"--build-arg=BASE_IMAGE={base}", f"--build-arg=FAULT={fault}", f"--label=note={note}"]
    run("docker", "build", "--quiet", f"--tag={tag}", *arguments, context, env=os.environ | {"DOCKER_BUILDKIT": "0"})
    path = folder / f"{name}.tar"
    run("docker", "save", "--output", path, tag)
    return path


def _stage(context: Path) -> None:
    """Lay out the build context anew, so that an unchanged kit gives the same image from the builder's cache."""
    shutil.rmtree(context, ignore_errors=True)
    (context / "wheels").mkdir(parents=True)
    shutil.copy(HERE / "Dockerfile", context)
    for wheel in sorted((cache() / "wheels").glob("*.whl")):
        if wheel.name.startswith(WHEELS):
            shutil.copy2(wheel, context / "wheels")
    for source, target in KIT.items():
        path = context / "kit" / target
        path.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, path, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / source, path)
