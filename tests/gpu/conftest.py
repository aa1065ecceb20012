"""GPU ring: skipped with a reason on a machine without a CUDA device."""

from pathlib import Path

import pytest
import torch


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    here = Path(__file__).parent
    for item in (item for item in items if here in item.path.parents):
        item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU, and torch.cuda.is_available() is false"))
