"""Progress on the error stream, so that results can be piped."""

import sys
import time


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
