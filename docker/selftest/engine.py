"""Whether the server's code can be imported, knows the algorithm, and sees the GPUs: each asked in a new process."""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from subject import Skipped, Subject

# What a server imports at start, the GPU's part after the rest.
SERVING = (
    "torch", "transformers", "xgrammar", "sglang.srt.plugins", "sglang.launch_server",
    "sglang.srt.entrypoints.http_server", "sglang.srt.managers.scheduler",
    "sglang.srt.managers.detokenizer_manager", "sglang.srt.speculative.dflash_worker_v2", "sglang_ddtree.worker",
)  # fmt: skip
SERVING_ON_GPU = (
    "triton", "sglang.srt.layers.attention.triton_backend", "sglang_ddtree.ops.triton.build",
)  # fmt: skip
IMPORT = """
import importlib, json, sys
faults = []
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        faults.append(f"{name} cannot be imported: {type(error).__name__}: {str(error)[:300]}")
print(json.dumps(faults))
"""
ALGORITHM = """
import json
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
known = SpeculativeAlgorithm.from_string("DDTREE")
print(json.dumps([] if not known.is_none() else ["DDTREE is taken for no algorithm"]))
"""
GPUS = """
import json, sys, torch
faults = []
wanted = tuple(int(part) for part in sys.argv[1].split("."))
for index in range(torch.cuda.device_count()):
    name, have = torch.cuda.get_device_name(index), torch.cuda.get_device_capability(index)
    if have != wanted:
        faults.append(f"GPU {index} ({name}) has compute capability {have[0]}.{have[1]}: take the image for that")
        continue
    a = torch.randn(256, 256, device=f"cuda:{index}", dtype=torch.bfloat16)
    if not torch.allclose((a @ a).float().cpu(), a.float().cpu() @ a.float().cpu(), atol=1.0, rtol=0.02):
        faults.append(f"GPU {index} ({name}) multiplies matrices wrongly")
print(json.dumps(faults or ([] if torch.cuda.device_count() else ["torch sees no GPU"])))
"""


def _run(subject: Subject, code: str, *arguments: str) -> list[str]:
    path = os.pathsep.join([*map(str, subject.sites), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as home:
        # FlashInfer writes a log below it as soon as it is imported, and the root may be read-only.
        environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "HOME": home}
        run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment)
    lines = [line for line in (run.stdout if run.returncode == 0 else run.stderr).splitlines() if line.strip()]
    if run.returncode:
        return [lines[-1] if lines else f"Python ended with {run.returncode}"]
    return json.loads(lines[-1])


def imports(subject: Subject) -> list[str]:
    """What serving imports can be imported."""
    names = [*SERVING, *(SERVING_ON_GPU if subject.capability else ())]
    return _run(subject, IMPORT, *names, *(("sgl_kernel",) if subject.capability and _has_driver() else ()))


def _has_driver() -> bool:
    """Whether the driver's library is here, which `sgl_kernel` loads; a build has none."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def algorithm(subject: Subject) -> list[str]:
    """SGLang loads the plugin, and with it knows the algorithm."""
    return _run(subject, ALGORITHM)


def gpus(subject: Subject) -> list[str]:
    """Each GPU is of the generation and multiplies matrices; the driver is new enough."""
    if subject.capability is None:
        raise Skipped("this is the image for CPUs")
    version = Path("/proc/driver/nvidia/version")
    if not version.exists() and not Path("/dev/nvidiactl").exists():
        raise Skipped("no GPU here: start the container with one to test it")
    return [*_driver(subject), *_run(subject, GPUS, subject.build["COMPUTE_CAPABILITY"])]


def _driver(subject: Subject) -> list[str]:
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(ask, capture_output=True, text=True).stdout.split()
    except FileNotFoundError:
        return ["nvidia-smi is missing: give the container the capability utility"]
    floor = subject.build["DRIVER_MIN"]
    if found and _numbers(found[0]) >= _numbers(floor):
        return []
    return [
        f"the driver is {found[0] if found else 'not answering'}: CUDA {subject.build['CUDA_VERSION']} needs {floor}"
    ]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
