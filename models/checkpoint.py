"""Look at a target and a drafter folder before anything is started. Standard library only."""

from __future__ import annotations

import json
from pathlib import Path

from models.compatibility import find_doubts, find_problems
from models.errors import ModelError
from models.safetensors_file import damage

_INDEX = "model.safetensors.index.json"


def check_folders(target: Path, drafter: Path, block_size: int | None = None) -> list[str]:
    """Raise ModelError when a folder is missing or half copied, or when the drafter does not fit the target.

    block_size: the block size D, root included, that the engine is to run with; None takes the drafter's.

    Returns:
        What to expect where the pair is run otherwise than the drafter was trained; mostly empty.
    """
    configs = [_read_config(role, folder) for role, folder in (("target", target), ("drafter", drafter))]
    problems = find_problems(*configs, block_size)
    if problems:
        raise ModelError(f"The drafter in {drafter} does not fit the target in {target}: {'; '.join(problems)}.")
    for role, folder in (("target", target), ("drafter", drafter)):
        _check_weights(role, folder)
    return find_doubts(configs[1], block_size)


def _read_config(role: str, folder: Path) -> dict:
    if not folder.is_dir():
        raise ModelError(f"The {role} folder {folder} does not exist; fetch the pair or correct the path.")
    return read_json(folder / "config.json", role)


def read_json(path: Path, role: str) -> dict:
    """The object in a JSON file; ModelError when it is missing, cut short or no object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"The {role} has no {path.name} in {path.parent}; fetch or copy it again.") from None
    except ValueError:  # both a cut text and bytes that are no text
        raise ModelError(f"The {role}'s {path} is damaged (not JSON); fetch or copy it again.") from None
    if not isinstance(content, dict):
        raise ModelError(f"The {role}'s {path} is damaged (not a JSON object); fetch or copy it again.")
    return content


def _check_weights(role: str, folder: Path) -> None:
    index = folder / _INDEX
    if index.exists():
        shards = read_json(index, role).get("weight_map") or {}
        names = sorted(set(shards.values()))
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        raise ModelError(f"The {role} has no weights (*.safetensors) in {folder}; fetch or copy it again.")
    for name in names:
        path = folder / name
        reason = damage(path) if path.is_file() else "is missing"
        if reason:
            raise ModelError(f"The {role}'s {path} {reason}; fetch or copy it again.")
