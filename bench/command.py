"""What the command lines have in common at their ends: a mistake is one line, a result is a file and a table."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from bench.errors import BenchError
from models.errors import ModelError
from smoke_tests.pair import PairError
from smoke_tests.verdict import ProbeError


def guarded(main: Callable[[], int]) -> int:
    """Run a command line: errors that a user can mend are one line, and a SIGTERM ends the servers too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return main()
    except (BenchError, ModelError, PairError, ProbeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def stored(measure: Callable[[], dict], output: Path, table: Callable[[dict], str]) -> int:
    """Exit code of a measurement whose document is written to `output` and printed as a table."""
    try:
        document = measure()
    except (BenchError, ModelError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document, indent=1) + "\n")
    print(table(document))
    return 0
