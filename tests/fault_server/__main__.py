"""Serves a fault by hand: `python -m tests.fault_server Loop --port 30500`."""

from __future__ import annotations

import argparse

from .behaviour import Good
from .engine import Engine
from .faults import BY_NAME
from .recording import Recording
from .server import FaultServer


def main() -> None:
    known = "\n".join(f"  {name:<32} {kind.__doc__}" for name, kind in BY_NAME.items())
    parser = argparse.ArgumentParser(
        description="Replay a recorded server, with one fault or none.",
        epilog=f"faults:\n{known}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("fault", nargs="?", choices=BY_NAME, metavar="FAULT", help="one of those below")
    parser.add_argument("--port", type=int, default=30500)
    options = parser.parse_args()
    behaviour = BY_NAME[options.fault]() if options.fault else Good()
    with FaultServer(Engine(Recording.load()), behaviour, options.port) as server:
        print(f"{options.fault or 'no fault'} at {server.url}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
