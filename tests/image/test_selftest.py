"""The image tests itself: green as it was built, and every planted defect is named, none hidden by another."""

import io
import json
import re
import subprocess
import tarfile
import zipfile

import pytest

from tests.image.conftest import CACHE, IMAGE, VERSION, docker

SITE = "/opt/venv/lib/python3.11/site-packages"
NAME = "sglang-ddtree-selftest"
PATCHED, UNPATCHED = "sglang/srt/mem_cache/allocation_sizing.py", "sglang/srt/mem_cache/allocation.py"


def shell(script: str) -> str:
    return f"cd {SITE} && {script}"


# What is done to a file of the image -> the check that must name it, and what it must say.
DEFECTS = {
    "a library for another processor": (
        # 183 is aarch64; the field is at byte 18 of the ELF header.
        shell(r"printf '\267\000' | dd of=$(ls yaml/_yaml*.so) bs=1 seek=18 conv=notrunc"),
        "libraries", r"yaml/_yaml\S+\.so is compiled for another processor than x86-64 \(ELF machine 183\)",
    ),
    "half a library": (
        shell("truncate --size=20000 $(ls psutil/_psutil_linux*.so)"),
        "libraries", r"psutil/_psutil_linux\S+\.so is cut off",
    ),
    "a changed byte in a patched file": (
        shell(f"sed -i '1s/^./#/' {PATCHED}"), "patches", rf"{PATCHED} was changed",
    ),
    "a changed byte in another file of SGLang": (
        shell("sed -i '1s/^/#/' sglang/srt/utils/common.py"), "files", r"sglang/srt/utils/common\.py was changed",
    ),
    "a missing header": (
        shell("rm tvm_ffi/include/tvm/ffi/any.h"), "files", r"tvm_ffi/include/tvm/ffi/any\.h is missing",
    ),
    "a missing module of the plugin": (
        shell("rm sglang_ddtree/verify_input.py"), "files", r"sglang_ddtree/verify_input\.py is missing",
    ),
    "a plugin that is not registered": (
        shell("rm sglang_ddtree-*.dist-info/entry_points.txt"), "plugin", "sglang_ddtree is not registered",
    ),
    "a version off the lock": (
        shell("mv xgrammar-0.2.1.dist-info xgrammar-0.2.0.dist-info"),
        "versions", r"xgrammar is 0\.2\.0: the lock has xgrammar==0\.2\.1",
    ),
    "a missing package": (
        shell("rm -r orjson orjson-*.dist-info"), "versions", "orjson is missing: the lock has orjson==",
    ),
    "an import that fails": (
        shell("echo 'raise ImportError(\"planted\")' >> tokenizers/__init__.py"),
        "imports", "cannot be imported: ImportError: planted",
    ),
}  # fmt: skip


def selftest(*arguments: str) -> tuple[int, dict]:
    """Exit code and report of the self-test of the running container."""
    run = subprocess.run(
        ["docker", "exec", NAME, "python3", "/opt/kit/selftest", *arguments], capture_output=True, text=True
    )
    assert run.stdout, run.stderr
    return run.returncode, json.loads(run.stdout)


def faults(report: dict) -> dict[str, str]:
    return {check["check"]: "\n".join(check.get("faults", [])) for check in report["checks"]}


@pytest.fixture
def container():
    """The image with a root that can be written, so that defects can be planted."""
    code, said = docker("run", "--detach", "--name", NAME, "--user", "0", "--entrypoint", "sleep", IMAGE, "600")
    assert code == 0, said
    try:
        yield NAME
    finally:
        docker("rm", "--force", NAME)


def unpatched(name: str) -> bytes:
    """A file as SGLang's own wheel has it."""
    (wheel,) = (CACHE / "wheels").glob(f"sglang-{VERSION}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name)


def put(name: str, data: bytes) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(data), 0o644
        archive.addfile(entry, io.BytesIO(data))
    subprocess.run(["docker", "cp", "-", f"{NAME}:{SITE}"], input=packed.getvalue(), check=True)


def test_it_passes_as_the_server_runs_with_a_read_only_root_and_without_a_network():
    locked = ["--read-only", "--tmpfs", "/tmp", "--network", "none", "--cap-drop", "ALL"]
    run = subprocess.run(["docker", "run", "--rm", *locked, IMAGE, "selftest"], capture_output=True, text=True)
    report = json.loads(run.stdout)
    assert run.returncode == 0 and report["ok"], run.stdout
    assert report["sglang"] == VERSION and report["generation"] == "cpu"
    states = {check["check"]: "skipped" in check for check in report["checks"]}
    assert {name for name, skipped in states.items() if skipped} == {"jit", "gpus"}
    assert len(states) == 9


def test_every_planted_defect_is_named(container):
    for name, (script, _, _) in DEFECTS.items():
        code, said = docker("exec", NAME, "sh", "-ec", script)
        assert code == 0, f"{name} could not be planted: {said}"
    put(UNPATCHED, unpatched(UNPATCHED))
    code, report = selftest()
    assert code == 1 and not report["ok"]
    found = faults(report)
    unnamed = [name for name, (_, check, words) in DEFECTS.items() if not re.search(words, found[check])]
    assert not unnamed, found
    assert f"{UNPATCHED} is not patched" in found["patches"]


def test_an_image_of_another_generation_does_not_pass_for_it(container):
    code, report = selftest("--generation", "sm90", "--check", "versions", "--check", "jit")
    found = faults(report)
    assert code == 1 and "nvidia-cuda-nvcc is missing" in found["versions"] and "nvcc is missing" in found["jit"]
    run = subprocess.run(
        ["docker", "exec", NAME, "python3", "/opt/kit/selftest", "--generation", "sm80"], capture_output=True, text=True
    )
    assert run.returncode == 2 and "use one of cpu, sm90, sm100, sm103, sm120" in run.stderr
