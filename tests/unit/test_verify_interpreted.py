"""SGLang's verify kernel at the latent dimensions of a large MLA target, interpreted, against plain torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("ENGINE_FULL") != "1", reason="takes a minute: set ENGINE_FULL=1")
def test_the_verify_kernel_masks_a_tree_over_latent_rows():
    pytest.importorskip("sglang", reason="sglang is not installed: run the tests in the engine environment")
    paths = [str(ROOT / "patches"), str(ROOT / "docker" / "cpu")]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(ROOT / "tests" / "gpu" / "bench_verify.py"), "--check"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "agree with plain torch at widths (1, 9, 17, 33)" in done.stdout
