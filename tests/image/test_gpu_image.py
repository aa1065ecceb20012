"""The image of a generation of GPUs, built for real: green without a GPU, and what breaks only there is named.

`make gpu-image` (`GENERATION`, default sm90): downloads 3.4 GB, needs 20 GB of disk and a quarter of an hour.
"""

import json
import os
import subprocess

import pytest

from tests.image.conftest import CACHE, ROOT, VERSION, docker
from tests.image.test_compose_gpu import GPUS, config
from tests.image.test_selftest import faults, shell

GENERATION = os.environ.get("GENERATION")
pytestmark = pytest.mark.skipif(not GENERATION, reason="builds 7 GB: run `make gpu-image`")
IMAGE = f"sglang-ddtree:{GENERATION}-{VERSION}"
NAME = "sglang-ddtree-gpu-selftest"
#: Upstream's runtime image is reported as 20 GB.
LARGEST_GB = 8.0
COMPILED = """
from triton.runtime.build import compile_module_from_src
source = '#include <Python.h>\\nstatic struct PyModuleDef probe = {PyModuleDef_HEAD_INIT, "probe", 0, -1, 0};'
source += "PyMODINIT_FUNC PyInit_probe(void) { return PyModule_Create(&probe); }"
print(compile_module_from_src(source, "probe").__name__)
"""
DEFECTS = {
    "a library for another processor": (
        # 183 is aarch64; the field is at byte 18 of the ELF header.
        r"printf '\267\000' | dd of=$(ls nvidia/cu13/lib/libcublas.so.*) bs=1 seek=18 conv=notrunc",
        "libraries",
        "is compiled for another processor than x86-64 (ELF machine 183)",
    ),
    "a missing header of CUDA": (
        "rm $(find nvidia/cu13/include -name curand_kernel.h)",
        "jit",
        "curand_kernel.h is missing",
    ),
    "no compiler of CUDA": ("rm nvidia/cu13/bin/nvcc", "jit", "nvcc is missing"),
    "a changed byte in a patched file": (
        "sed -i '1s/^./#/' sglang/srt/mem_cache/allocation_sizing.py",
        "patches",
        "allocation_sizing.py was changed",
    ),
}


@pytest.fixture(scope="module", autouse=True)
def image():
    tools = str(CACHE / "tools" / "bin" / "python")
    build = os.environ | {"PYTHON": tools, "CACHE_DIR": str(CACHE), "GENERATION": GENERATION}
    subprocess.run([ROOT / "scripts" / "build-image.sh", VERSION], check=True, env=build)


def report(*command: str) -> tuple[int, dict]:
    run = subprocess.run(["docker", *command], capture_output=True, text=True)
    assert run.stdout, run.stderr
    return run.returncode, json.loads(run.stdout)


def test_it_passes_with_a_read_only_root_without_a_network_and_without_a_gpu():
    locked = ["--read-only", "--tmpfs", "/tmp", "--network", "none", "--cap-drop", "ALL"]
    code, found = report("run", "--rm", *locked, IMAGE, "selftest")
    assert code == 0 and found["ok"], found
    assert found["generation"] == GENERATION
    assert [check["check"] for check in found["checks"] if "skipped" in check] == ["gpus"]


def test_it_is_small_runs_as_nobody_and_says_what_it_needs():
    code, said = docker("image", "inspect", IMAGE)
    assert code == 0, said
    (found,) = json.loads(said)
    assert found["Size"] < LARGEST_GB * 1e9
    config = found["Config"]
    assert config["User"] == "10001:10001" and config["Healthcheck"]
    bake = json.loads((ROOT / "docker" / "bake.json").read_text())["target"][GENERATION]["args"]
    for wanted in (bake["COMPUTE_CAPABILITY"], bake["CUDA_VERSION"], bake["DRIVER_MIN"]):
        assert wanted in config["Labels"].values(), config["Labels"]


def test_what_is_compiled_at_run_time_can_be_loaded_in_the_container_that_compose_starts():
    done = config(GENERATION, GPUS=GPUS)
    server = json.loads(done.stdout)["services"][GENERATION]
    options = [part for mount in server["tmpfs"] for part in ("--tmpfs", mount)]
    options += ["--read-only", "--cap-drop", "ALL", "--user", server["user"], "--entrypoint", "python3"]
    code, said = docker("run", "--rm", *options, IMAGE, "-c", COMPILED)
    assert (code, said.strip().splitlines()[-1]) == (0, "probe"), said


def test_defects_of_the_toolkit_and_the_patches_are_named():
    code, said = docker("run", "--detach", "--name", NAME, "--user", "0", "--entrypoint", "sleep", IMAGE, "900")
    assert code == 0, said
    try:
        for name, (script, _, _) in DEFECTS.items():
            code, said = docker("exec", NAME, "sh", "-ec", shell(script))
            assert code == 0, f"{name} could not be planted: {said}"
            _, check, words = DEFECTS[name]
            code, found = report("exec", NAME, "python3", "/opt/kit/selftest", "--check", check)
            assert code == 1 and words in faults(found)[check], (name, found)
    finally:
        docker("rm", "--force", NAME)
