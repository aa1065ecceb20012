"""What `sanitize.py` runs under compute-sanitizer: `python tests/gpu/sanitized_cases.py SECONDS`.

Every kernel on every shape of the tests, with fewer and smaller batches: under the sanitizer a step takes a
hundred times as long. Stops early when SECONDS have passed, and prints what it covered.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import test_ops_gpu as tests

BATCHES = [1, 3, 16, 31, 97]
TRIALS = 4


def main() -> None:
    end = time.monotonic() + float(sys.argv[1])
    tests.BATCHES[:], tests.TRIALS = BATCHES, TRIALS
    covered = {"shapes": 0, "cases": 0, "pools": 0}
    for shape in tests.SHAPES:
        if time.monotonic() > end:
            break
        tests.test_kernels_equal_the_references(*shape)
        covered["shapes"] += 1
        covered["cases"] += 2 * sum(BATCHES)
    for pool in tests.POOLS:
        if time.monotonic() > end:
            break
        tests.test_rows_move_in_place_as_into_a_copy(pool)
        covered["pools"] += 1
    print(json.dumps(covered))


if __name__ == "__main__":
    main()
