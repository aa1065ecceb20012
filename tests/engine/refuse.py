"""Says how SGLang's argument handling answers to configurations, one by one, after importing it once.

A line on standard input is a JSON object {"arguments": [...], "environment": {...}}; the answer is a line with the last
line that a process of its own prints before it ends, or "accepted".
"""

import json
import os
import sys
import tempfile
import traceback

from sglang.srt.plugins import load_plugins
from sglang.srt.server_args import prepare_server_args


def answer(arguments: list[str], environment: dict[str, str]) -> str:
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 2)
            os.environ.update(environment)
            handle(arguments)
        os.waitpid(child, 0)
        said.seek(0)
        return said.read().decode().strip().splitlines()[-1]


def handle(arguments: list[str]) -> None:
    """What a server does with its arguments before it loads anything; does not return."""
    try:
        load_plugins()
        args = prepare_server_args(arguments)
        # 0.5.16 resolves the arguments as it parses them, 0.5.23 when it is asked to.
        getattr(args, "resolve_once", lambda: None)()
        print("accepted", file=sys.stderr)
    except SystemExit as error:
        # As the interpreter would: the message alone.
        print(error, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


for line in sys.stdin:
    print(json.dumps(answer(**json.loads(line))), flush=True)
