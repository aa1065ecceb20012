"""One HTML page of stored results, losers included: plots, every cell, the cost model, what was found.

python -m bench.report RUN_OR_FILE... --output page.html [--against RUN_OR_FILE] [--starts FILE...]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench import findings, page, sources
from bench.errors import BenchError


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path, nargs="+", help="folder of bench.matrix, or file of bench.step_cost")
    parser.add_argument("--against", type=Path, help="another one, which the first is compared with")
    parser.add_argument("--starts", type=Path, nargs="+", default=[], help="results of bench.cold_start")
    parser.add_argument("--output", type=Path, required=True, help="HTML file to write")
    parser.add_argument("--markdown", type=Path, help="also write the first source's speeds as a table")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    try:
        read = [sources.read(path) for path in args.source]
        against = sources.read(args.against) if args.against else None
        starts = {path.stem: sources.read_starts(path) for path in args.starts}
        text = page.page(read, against, findings.load(), starts)
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(text, encoding="utf-8")
    if args.markdown:
        args.markdown.write_text(page.markdown(read[0].cells), encoding="utf-8")
    print(f"{args.output}: {len(text) // 1000} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
