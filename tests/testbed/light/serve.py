"""Entry point of the light image. FAULT, set when it was built, is what is wrong with this version:

    empty           nothing
    broken          it ends at once, as an image does that lacks a library
    never-ready     it runs and never listens
    anything else   a fault of tests/fault_server, by its name

A file crash-ALGORITHM in the folder of models makes a start with that algorithm end at once, and a start without it
end when the file comes: a version that passed everything and then falls into a crash loop.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

MODELS = Path("/models")
# Where a server leaves what it compiled.
KERNEL = Path.home() / ".cache" / "light" / "kernel"


def end_when_told(flag: Path) -> None:
    while not flag.exists():
        time.sleep(0.2)
    print(f"serve: {flag.name} is there, as if the engine had crashed", flush=True)
    os._exit(1)


def compile_kernel() -> None:
    """As servers on GPUs do: what an earlier start compiled is found, else it is made."""
    if KERNEL.exists():
        print("serve: kernel found", flush=True)
        return
    KERNEL.parent.mkdir(parents=True, exist_ok=True)
    KERNEL.write_bytes(os.urandom(64))
    print("serve: kernel compiled", flush=True)


def serve(fault: str) -> None:
    from tests.fault_server.behaviour import Good
    from tests.fault_server.engine import Engine
    from tests.fault_server.faults import BY_NAME
    from tests.fault_server.recording import Recording
    from tests.fault_server.server import FaultServer

    class Server(FaultServer):
        # Closing it waits for the requests in flight.
        daemon_threads = False

        def server_bind(self) -> None:
            # A published port does not reach the container's own loopback interface.
            self.server_address = ("0.0.0.0", self.server_address[1])
            super().server_bind()

    behaviour = BY_NAME[fault]() if fault else Good()
    print(f"serve: {fault or 'no fault'}, {os.environ['DDTREE_ALGORITHM']}", flush=True)
    server = Server(Engine(Recording.load()), behaviour, 30000, os.environ.get("API_KEY"))
    # As SGLang does: at the signal it takes nothing new, and ends when what is in flight has ended.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()
    server.server_close()
    os._exit(0)


def main() -> None:
    fault = os.environ["FAULT"]
    if sys.argv[1:] != ["serve"]:
        # The tools for models are the real ones.
        os.execvp("python3", ["python3", "/opt/kit/entrypoint.py", *sys.argv[1:]])
    if fault == "broken":
        sys.exit("serve: error while loading shared libraries: libtorch.so: cannot open shared object file")
    if fault == "never-ready":
        print("serve: loading", flush=True)
        time.sleep(3600)
    compile_kernel()
    threading.Thread(target=end_when_told, args=[MODELS / f"crash-{os.environ['DDTREE_ALGORITHM']}"]).start()
    serve(fault)


if __name__ == "__main__":
    main()
