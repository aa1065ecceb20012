"""Whether every compiled library runs here, the processor's and the GPU's side of it."""

from collections.abc import Iterator
from pathlib import Path

from gpu_code import gpu_code, is_elf, machine
from subject import Subject

X86_64 = 62
# cuFFT keeps its kernels in a form of its own; what its section holds is a stub of 0.6 kB for sm_75.
STUBS = ("nvidia/cu13/lib/libcufft",)


def libraries(subject: Subject) -> list[str]:
    """Every library of the first site and of the locked packages in the others; not all need device code."""
    return [fault for path, name in _libraries(subject) if (fault := _fault(path, name, subject.capability))]


def _libraries(subject: Subject) -> Iterator[tuple[Path, str]]:
    first, *others = subject.sites
    names = {other: [path for path in subject.locked_files(other) if ".so" in path] for other in others}
    found = {first: [str(path.relative_to(first)) for path in first.rglob("*.so*")]} | names
    for site, paths in found.items():
        for name in sorted(paths):
            path = site / name
            if path.is_file() and not path.is_symlink() and is_elf(path):
                yield path, name


def _fault(path: Path, name: str, capability: int | None) -> str | None:
    try:
        if machine(path) != X86_64:
            return f"{name} is compiled for another processor than x86-64 (ELF machine {machine(path)})"
        code = gpu_code(path)
    except ValueError as error:
        return f"{name} {error}: install its package again"
    if capability is None or not code or name.startswith(STUBS) or any(kind.runs_on(capability) for kind in code):
        return None
    held = ", ".join(sorted(map(str, code)))
    return f"{name} holds code for {held} and none for sm_{capability}: take the build of this generation"
