"""A place for half-done work that nothing else ever reads."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STAGE = ".fetching"
_LOCK = ".fetching.lock"


@contextmanager
def staging_folder(parent: Path) -> Iterator[Path]:
    """An empty folder inside `parent` (same file system, so that a rename out of it is atomic).

    One process at a time holds it; another waits. What a killed process left there is thrown away.
    """
    parent.mkdir(parents=True, exist_ok=True)
    stage = parent / _STAGE
    with (parent / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel drops it when the process dies
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir()
        try:
            yield stage
        finally:
            shutil.rmtree(stage, ignore_errors=True)
