"""Device code is found in real libraries as the wheels carry them, and a library without the generation's is named."""

import json
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts import wheels
from tests.image.conftest import CACHE, ROOT

SELFTEST = ROOT / "docker" / "selftest"
GENERATIONS = ("sm90", "sm100", "sm103", "sm120")
LOCK = ROOT / "docker" / "locks" / "gpu-0.5.16.txt"
TOOLKIT = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-cccl", "nvidia-cuda-runtime")
LIBRARIES = ("nvidia-curand", "nvidia-cublas", "nvidia-cuda-nvrtc")

sys.path.insert(0, str(SELFTEST))
from gpu_code import Code, gpu_code  # noqa: E402

full = pytest.mark.skipif(os.environ.get("ENGINE_FULL") != "1", reason="downloads 0.7 GB: run `make test-full`")


def wheel(name: str) -> Path:
    """A wheel of the GPU lock, downloaded when the cache does not have it."""
    ((pin, digest),) = [item for item in wheels.read_lock(LOCK).items() if item[0].startswith(f"{name}==")]
    folder = CACHE / "wheels"
    stem = pin.replace("==", "-").replace("-", "_").rsplit("_", 1)[0]
    found = [path for path in folder.glob(f"{stem}-*.whl") if wheels.sha256(path) == digest]
    if not found:
        wheels.fetch_rest({pin: digest}, folder)
    return next(path for path in folder.glob(f"{stem}-*.whl") if wheels.sha256(path) == digest)


def selftest(site: Path, generation: str, check: str, **environment: str) -> tuple[int, list[str]]:
    command = [sys.executable, str(SELFTEST), "--generation", generation, "--site", str(site), "--check", check]
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    assert run.stdout, run.stderr
    return run.returncode, json.loads(run.stdout)["checks"][0].get("faults", [])


@pytest.fixture
def site(tmp_path):
    """torchvision as its wheel for CUDA has it: four libraries, of which two hold device code."""
    with zipfile.ZipFile(wheel("torchvision")) as archive:
        archive.extractall(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("code", "runs_on", "not_on"),
    [
        (Code(False, 90, ""), [90], [80, 100, 120]),
        (Code(False, 90, "a"), [90], [100]),
        (Code(False, 80, ""), [80, 86, 89], [75, 90]),
        (Code(False, 86, ""), [86, 89], [80]),
        (Code(False, 100, ""), [100, 103], [90, 110, 120]),
        (Code(False, 100, "a"), [100], [103]),
        (Code(False, 100, "f"), [100, 103], [120]),
        (Code(False, 103, "f"), [103], [100]),
        (Code(True, 90, ""), [90, 100, 120], [89]),
        (Code(True, 90, "a"), [90], [100]),
        (Code(True, 100, "f"), [100, 103], [120]),
    ],
)
def test_the_rules_of_compatibility(code, runs_on, not_on):
    assert all(code.runs_on(capability) for capability in runs_on)
    assert not any(code.runs_on(capability) for capability in not_on)


def test_a_real_library_shows_what_it_was_built_for(site):
    found = {str(code) for code in gpu_code(site / "torchvision" / "_C.so")}
    assert found == {"sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"}
    assert not gpu_code(site / "torchvision" / "image.so")
    # What is plain for 10.0 runs on 10.3 as well.
    for generation in GENERATIONS:
        assert selftest(site, generation, "libraries") == (0, [])


def test_a_library_without_code_of_the_generation_is_named_and_only_it(site):
    path = site / "torchvision" / "_C.so"
    data = bytearray(path.read_bytes())
    # The header of an entry of machine code: kind 2, version 0x0101, 64 bytes; its capability stands at byte 28.
    start = 0
    while (start := data.find(struct.pack("<HHI", 2, 0x0101, 64), start)) != -1:
        if struct.unpack_from("<I", data, start + 28) == (90,):
            struct.pack_into("<I", data, start + 28, 75)
        start += 64
    path.write_bytes(data)
    code, (fault,) = selftest(site, "sm90", "libraries")
    assert code == 1 and fault.startswith("torchvision/_C.so holds code for compute_120, sm_100, sm_120, sm_75")
    assert "none for sm_90" in fault
    assert selftest(site, "sm120", "libraries") == (0, [])


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory):
    """The CUDA toolkit of the lock, laid out as in the image."""
    site = tmp_path_factory.mktemp("site")
    for name in (*TOOLKIT, *LIBRARIES):
        with zipfile.ZipFile(wheel(name)) as archive:
            archive.extractall(site)
    home = site / "nvidia" / "cu13"
    for path in [*(home / "bin").iterdir(), *(home / "nvvm" / "bin").iterdir()]:
        path.chmod(0o755)
    subprocess.run([sys.executable, "-c", f"import trim; trim.link(trim.Path({str(home)!r}))"], cwd=ROOT / "docker")
    return site


def assembler(site: Path) -> dict[str, str]:
    """Triton itself is 0.2 GB more; which of its assemblers is asked is the same."""
    path = str(site / "nvidia" / "cu13" / "bin" / "ptxas")
    return {"TRITON_PTXAS_PATH": path, "TRITON_PTXAS_BLACKWELL_PATH": path}


@full
@pytest.mark.parametrize("generation", GENERATIONS)
def test_kernels_compile_for_the_generation(toolkit, generation):
    assert selftest(toolkit, generation, "jit", **assembler(toolkit)) == (0, [])


@full
def test_a_missing_header_and_an_assembler_that_is_too_old_are_named(toolkit, tmp_path):
    header = toolkit / "nvidia" / "cu13" / "include" / "curand_kernel.h"
    aside = header.rename(tmp_path / "curand_kernel.h")
    code, (fault,) = selftest(toolkit, "sm90", "jit", **assembler(toolkit))
    assert code == 1 and fault.startswith("the header curand_kernel.h is missing")
    aside.rename(header)
    with zipfile.ZipFile(wheel("triton")) as archive:
        # 12.8, which Triton takes for Hopper, does not know 10.3; what it takes for Blackwell does.
        tools = "triton/backends/nvidia/bin"
        old, new = (archive.extract(f"{tools}/{name}", tmp_path) for name in ("ptxas", "ptxas-blackwell"))
    for path in (old, new):
        Path(path).chmod(0o755)
    assert selftest(toolkit, "sm103", "jit", TRITON_PTXAS_BLACKWELL_PATH=new) == (0, [])
    code, (fault,) = selftest(toolkit, "sm103", "jit", TRITON_PTXAS_BLACKWELL_PATH=old)
    assert code == 1 and "does not know sm_103: set TRITON_PTXAS_BLACKWELL_PATH" in fault


@full
@pytest.mark.parametrize("kind", ["sm_90", "sm_90a", "sm_100f", "sm_103a", "sm_120", "compute_100f", "compute_120"])
def test_the_reader_finds_what_the_compiler_was_asked_for(toolkit, tmp_path, kind):
    source, library = tmp_path / "kernel.cu", tmp_path / "kernel.so"
    source.write_text("__global__ void add(float* x) { x[threadIdx.x] += 1; }")
    options = ["-shared", "-Xcompiler=-fPIC", "-cudart=none"]
    target = f"arch={kind.replace('sm_', 'compute_')},code={kind}"
    nvcc = str(toolkit / "nvidia" / "cu13" / "bin" / "nvcc")
    subprocess.run([nvcc, *options, "-gencode", target, "-o", str(library), str(source)], check=True)
    assert {str(code) for code in gpu_code(library)} == {kind}
