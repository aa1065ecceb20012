#!/usr/bin/env python3
"""Test that an image, or packages that lie in folders, are what the build of a GPU generation promises.

    python3 selftest                                         in an image: the generation that it was built for
    python3 docker/selftest --generation sm90 --site DIR     anywhere; --site may be repeated, first one first

Prints one JSON object. Exit code 0: every check passed or had nothing to look at; 1: at least one fault, each of which
names the file or package and the cure; 2: it could not be tested.
"""

import argparse
import json
import os
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

from engine import algorithm, gpus, imports
from jit import jit
from libraries import libraries
from packages import files, patches, plugin, versions
from subject import Skipped, Subject, SubjectError

CHECKS = (versions, patches, plugin, files, libraries, jit, imports, algorithm, gpus)


def outcome(check: Callable[[Subject], list[str]], subject: Subject) -> dict:
    began = time.monotonic()
    try:
        faults, state = check(subject), None
    except Skipped as reason:
        faults, state = [], {"skipped": str(reason)}
    except SubjectError as error:
        faults, state = [str(error)], None
    found = {"check": check.__name__, "ok": not faults, "seconds": round(time.monotonic() - began, 1)}
    return found | (state or {}) | ({"faults": faults} if faults else {})


def main(arguments: list[str]) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="selftest", description=__doc__, formatter_class=raw)
    parser.add_argument("--generation", default=os.environ.get("DDTREE_GENERATION"), help="default: the image's own")
    parser.add_argument("--site", type=Path, action="append", help="folder of packages (default: this Python's)")
    parser.add_argument("--check", action="append", choices=[check.__name__ for check in CHECKS], help="only this one")
    args = parser.parse_args(arguments)
    try:
        sites = args.site or [Path(sysconfig.get_path("purelib"))]
        subject = Subject.of(sites, args.generation or "")
    except SubjectError as error:
        print(f"selftest: {error}", file=sys.stderr)
        return 2
    chosen = [check for check in CHECKS if not args.check or check.__name__ in args.check]
    results = [outcome(check, subject) for check in chosen]
    ok = all(result["ok"] for result in results)
    head = {"ok": ok, "generation": subject.build["GENERATION"], "sglang": subject.installed().get("sglang", ("",))[0]}
    print(json.dumps(head | {"sites": list(map(str, subject.sites)), "checks": results}, indent=1))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
