"""Whether kernels can be compiled at run time for the generation: what JIT includes, links and calls is there."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from subject import Skipped, Subject

TOOLKIT = "nvidia/cu13"
HEADERS = (
    "cuda_runtime.h", "cuda.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cooperative_groups.h", "nv/target",
    "cub/cub.cuh", "cuda/std/cstdint", "curand.h", "curand_kernel.h", "cublas_v2.h", "nvrtc.h",
)  # fmt: skip
PROBE = """
__global__ void scale(float* x) { x[threadIdx.x] = __half2float(__float2half(x[threadIdx.x] * 2.f)); }
extern "C" int run(float* x) { scale<<<1, 32>>>(x); return cudaDeviceSynchronize(); }
"""


def toolkit(subject: Subject) -> Path:
    """The CUDA toolkit: that of the wheels, else CUDA_HOME."""
    found = subject.find(TOOLKIT)
    if found and (found / "bin" / "nvcc").is_file():
        return found
    return Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda")


def jit(subject: Subject) -> list[str]:
    """Compile and link one file with every header that JIT needs, and assemble for the generation."""
    if subject.capability is None:
        raise Skipped("nothing is compiled at run time on a CPU")
    home = toolkit(subject)
    nvcc = home / "bin" / "nvcc"
    if not nvcc.is_file():
        return [f"{nvcc} is missing: kernels are compiled at run time with it, or set CUDA_HOME to a toolkit"]
    if not shutil.which("g++"):
        return ["g++ is missing: nvcc and Triton need a host compiler"]
    places = (home / "include", home / "include" / "cccl")
    missing = [name for name in HEADERS if not any((place / name).is_file() for place in places)]
    if missing:
        return [f"the header {name} is missing in {home}: kernels that include it do not compile" for name in missing]
    return [*_compile(nvcc, home, subject.capability), *_triton_assembler(subject)]


def _compile(nvcc: Path, home: Path, capability: int) -> list[str]:
    with tempfile.TemporaryDirectory() as work:
        source, library = Path(work, "probe.cu"), Path(work, "probe.so")
        source.write_text("".join(f"#include <{name}>\n" for name in HEADERS) + PROBE)
        command = [str(nvcc), f"-arch=sm_{capability}", "-shared", "-Xcompiler=-fPIC", "-cudart=shared"]
        command += [f"-I{home / 'include' / 'cccl'}", f"-L{home / 'lib64'}", "-o", str(library), str(source)]
        run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode == 0:
        return []
    lines = [line for line in (run.stderr + run.stdout).splitlines() if re.search("error|fatal|cannot", line)]
    return [f"nvcc cannot build for sm_{capability}: {lines[0] if lines else 'exit code ' + str(run.returncode)}"]


def _triton_assembler(subject: Subject) -> list[str]:
    """Triton takes one of two assemblers by generation; either may be older than the GPU."""
    name = "ptxas-blackwell" if subject.capability >= 100 else "ptxas"
    variable = f"TRITON_{name.upper().replace('-', '_')}_PATH"
    bundled = subject.find(f"triton/backends/nvidia/bin/{name}")
    path = os.environ.get(variable) or (str(bundled) if bundled else "")
    if not path:
        return [f"Triton has no {name}: set {variable} to the ptxas of a CUDA toolkit"]
    run = subprocess.run([path, "--help"], capture_output=True, text=True)
    if f"'sm_{subject.capability}'" in run.stdout:
        return []
    return [f"{path} does not know sm_{subject.capability}: set {variable} to the ptxas of a newer CUDA toolkit"]
