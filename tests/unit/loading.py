"""Files that are no part of a package, as modules: scripts, and what Ansible or a container runs by its path."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_file(path: Path) -> ModuleType:
    """The file as a new module, named after it; nothing of an earlier load is shared."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
