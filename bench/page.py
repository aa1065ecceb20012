"""The report as one HTML page: plots inside, every cell in tables, nothing to load from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape

from bench import cost_model, findings, plots
from bench.arms import in_order
from bench.claims import BASELINE, Standing, points, standings
from bench.errors import BenchError
from bench.plots import context_name
from bench.sources import Source
from bench.stats import claim_apart
from bench.store import Cell

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1180px; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px }
th, td { border-bottom: 1px solid #ddd; padding: 3px 9px; text-align: right; vertical-align: top }
th:first-child, td:first-child, .findings td, .findings th { text-align: left }
.faster { color: #176d2c } .slower, .worse { color: #a11 } .undecided, .unknown, .unmeasured { color: #777 }
.best { font-weight: bold } svg { max-width: 100%; height: auto } code { font-size: 12px; word-break: break-all }
"""


def page(
    sources: Sequence[Source],
    against: Source | None,
    known: Sequence[findings.Finding],
    starts: Mapping[str, dict] | None = None,
) -> str:
    """The whole document. against: what the first source is compared with. starts: of bench.cold_start, by name."""
    parts = [section for source in sources for section in _source(source)]
    parts += [_cold_start(name, document) for name, document in (starts or {}).items()]
    if against:
        parts.append(_comparison(sources[0], against))
    if known:
        parts.append(f"<h2>Findings</h2>{findings.html(list(known))}")
    return (
        "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><title>Benchmarks</title>"
        f"<style>{_STYLE}</style></head><body><h1>Benchmarks</h1>{''.join(parts)}</body></html>\n"
    )


def _source(source: Source) -> list[str]:
    found = {point: standings(source.cells, *point) for point in points(source.cells)}
    parts = [f"<h2>{escape(source.name)}</h2>{_facts(source.facts)}"]
    parts.append(f"<h3>Throughput against concurrency</h3>{plots.throughput(source.cells)}")
    parts.append(f"<h3>Envelope: the best arm at each point</h3>{_envelope(found)}")
    lengths = plots.accept_lengths(source.cells)
    if lengths:
        parts.append(f"<h3>Accept length against budget</h3>{lengths}{_categories(source.cells)}")
    if source.stages:
        parts.append(f"<h3>Where a step's time goes</h3>{plots.stages(source.stages)}")
    parts.append(_costs(source))
    parts.append(f"<h3>Every cell</h3>{cells_table(source.cells, found)}")
    return [*parts, _serving(source.cells), _starts(source.cells), _failures(source.cells, found)]


def _facts(facts: Mapping[str, object]) -> str:
    rows = "".join(
        f"<tr><th>{escape(key)}</th><td style='text-align:left'><code>{escape(_plain(value))}</code></td></tr>"
        for key, value in facts.items()
        if value is not None
    )
    return f"<table>{rows}</table>"


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _envelope(found: Mapping[tuple[int, int], Mapping[str, Standing]]) -> str:
    best, over = {}, {}
    for point, here in found.items():
        # A source without quality still has a fastest arm; one with it has a fastest arm that answers rightly.
        able = [standing for standing in here.values() if standing.quality in ("same", "unmeasured")]
        best[point] = max(able, key=lambda standing: standing.tokens_per_s)
        if BASELINE in here:
            over[point] = best[point].tokens_per_s / here[BASELINE].tokens_per_s
    return plots.envelope(best, over)


def cells_table(cells: Mapping[Cell, dict], found: Mapping[tuple[int, int], Mapping[str, Standing]]) -> str:
    """All cells, the losing and the refused ones included."""
    titles = ("arm", "context", "at once", "tok/s", "95% of the median", "ms/step", "accept", "over ar", "over chain")
    head = "".join(f"<th>{title}</th>" for title in (*titles, "answers as ar", "quality", "samples", "slowed, load"))
    rows, rank = [], {name: place for place, name in enumerate(in_order(cell.arm for cell in cells))}
    for cell, row in sorted(cells.items(), key=lambda item: (item[0].context, item[0].concurrency, rank[item[0].arm])):
        standing = found[cell.context, cell.concurrency][cell.arm]
        accept = row["median"]["accept_length"]
        equal = standing.answers_equal
        values = [
            escape(cell.arm),
            escape(context_name(cell.context)),
            str(cell.concurrency),
            f"{standing.tokens_per_s:.1f}",
            _bounds(standing.interval),
            f"{row['median']['ms_per_step']:.2f}",
            "-" if accept is None else f"{accept:.3f}",
            _claim(standing.over.get(BASELINE)),
            _claim(standing.over.get("chain")),
            f"{equal[0]} of {equal[1]}" if equal and equal[1] else "-",
            f"<span class='{standing.quality}' title='{escape(standing.why)}'>{standing.quality}</span>",
            str(len(row["samples"])),
            _host(row["host"]),
        ]
        rows.append("<tr>" + "".join(f"<td>{value}</td>" for value in values) + "</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _claim(said: dict | None) -> str:
    if said is None:
        return "-"
    title = f"{said['wins']} wins, {said['losses']} losses, p {said['p']:.3g}, {_bounds(said['interval'])}"
    return f"<span class='{said['verdict']}' title='{title}'>{said['ratio']:.3f} {said['verdict']}</span>"


def _bounds(bounds: Sequence[float] | None) -> str:
    return "-" if bounds is None else f"{bounds[0]:.4g} to {bounds[1]:.4g}"


def _host(host: dict | None) -> str:
    if not host:
        return "-"
    return escape(", ".join([*host.get("slowed_by", []), f"{host['load_max']:.1f}"]))


def _categories(cells: Mapping[Cell, dict]) -> str:
    # Cells of other contexts share what was measured once.
    rows = {
        (cell.arm, cell.concurrency): row["quality"]["accept_length"]
        for cell, row in cells.items()
        if row["quality"] and row["quality"]["accept_length"]
    }
    if not rows:
        return ""
    names = sorted({name for lengths in rows.values() for name in lengths})
    head = "".join(f"<th>{escape(name)}</th>" for name in ("arm", "at once", *names))
    body = "".join(
        f"<tr><td>{escape(arm)}</td><td>{concurrency}</td>"
        + "".join(f"<td>{lengths[name]:.3f}</td>" for name in names)
        + "</tr>"
        for (arm, concurrency), lengths in rows.items()
    )
    return f"<p>Tokens per verify step by category of prompts:</p><table><tr>{head}</tr>{body}</table>"


def _costs(source: Source) -> str:
    try:
        model = cost_model.fit(source.points)
        said = cost_model.describe(source.points)["left_out"]
    except BenchError as error:
        return f"<h3>What a step costs</h3><p>No fit: {escape(str(error))}.</p>"
    errors = "; ".join(
        f"{name}: median error {found['median']:.1%}, worst {found['worst']:.1%}"
        for name, found in ((key, said[key]) for key in ("ms", "tokens_per_s"))
        if found
    )
    plot = plots.costs(source.points, model)
    return (
        f"<h3>What a step costs</h3>{plot}<p>Reading the weights {model.weights:.2f} ms, "
        f"a node {model.node * 1000:.1f} µs. Each cell predicted by a fit without it: {errors}.</p>"
    )


def _serving(cells: Mapping[Cell, dict]) -> str:
    rows = [
        (cell, loop, row["serving"][loop])
        for cell, row in cells.items()
        if row["serving"]
        for loop in ("closed", "open")
    ]
    if not rows:
        return ""
    titles = ("arm", "context", "at once", "loop", "requests", "req/s", "tok/s", "TTFT p50", "p99", "TPOT p50", "p99")
    head = "".join(f"<th>{title}</th>" for title in (*titles, "ITL p50", "p99", "goodput req/s"))
    body = "".join(_serving_row(*row) for row in rows)
    return (
        f"<h3>Latency under load, in milliseconds (sglang.benchmark.serving)</h3><table><tr>{head}</tr>{body}</table>"
    )


def _serving_row(cell: Cell, loop: str, found: dict) -> str:
    spreads = [f"{found[key][p]:.1f}" for key in ("ttft_ms", "tpot_ms", "itl_ms") for p in ("p50", "p99")]
    numbers = [
        f"{found['requests_per_s']:.2f}",
        f"{found['tokens_per_s']:.1f}",
        *spreads,
        f"{found['goodput_per_s']:.2f}",
    ]
    values = [escape(cell.arm), cell.context, cell.concurrency, loop, found["requests"], *numbers]
    return "<tr>" + "".join(f"<td>{value}</td>" for value in values) + "</tr>"


def _starts(cells: Mapping[Cell, dict]) -> str:
    seconds = {cell.arm: row["server"]["start_s"] for cell, row in cells.items() if row.get("server")}
    rows = [f"<tr><td>{escape(a)}</td><td>{seconds[a]}</td></tr>" for a in in_order(seconds) if seconds[a] is not None]
    head = "<tr><th>arm</th><th>seconds until ready, beside the others of its group</th></tr>"
    return f"<h3>Cold starts</h3><table>{head}{''.join(rows)}</table>" if rows else ""


def _cold_start(name: str, document: dict) -> str:
    """A start by phase, and the later ones over the first."""
    facts = {key: document[key] for key in ("card", "driver", "versions", "date", "command", "flags")}
    rows = "".join(
        f"<tr><td>{escape(what)}</td><td>{ratio:.3f}</td></tr>" for what, ratio in document["ratios"].items()
    )
    split = f"<h3>Where a start's time goes</h3>{plots.starts(document)}<table>{rows}</table>"
    return f"<h2>{escape(name)}</h2>{_facts(facts)}{split}"


def _failures(cells: Mapping[Cell, dict], found: Mapping[tuple[int, int], Mapping[str, Standing]]) -> str:
    lines = [
        f"<li>{escape(cell.arm)}, {escape(context_name(cell.context))}, {cell.concurrency} at once: {escape(why)}</li>"
        for cell, row in cells.items()
        for why in _reasons(row, found[cell.context, cell.concurrency][cell.arm])
    ]
    return f"<h3>Refused cells and failed answers</h3><ul>{''.join(lines)}</ul>" if lines else ""


def _reasons(row: dict, standing: Standing) -> list[str]:
    refused = [f"{standing.quality}: {standing.why}"] if standing.quality in ("worse", "unknown") else []
    if not row["quality"]:
        return refused
    failed = [f for group in ("known", "coding") for f in row["quality"][group]["failures"]]
    return refused + [f"{f['verdict']}: {f['ask']} - {f['why']}" for f in failed]


def _comparison(new: Source, old: Source) -> str:
    shared = [cell for cell in new.cells if cell in old.cells]
    if not shared:
        raise BenchError(f"{new.name} and {old.name} have no cell in common: compare runs of the same arms and points")
    speeds = {cell: [[row["tokens_per_s"] for row in s.cells[cell]["samples"]] for s in (new, old)] for cell in shared}
    plot = plots.comparison({cell: claim_apart(*both) for cell, both in speeds.items()})
    note = "Measured at different times, so that samples are no pairs: intervals by bootstrap, no sign test."
    return f"<h2>{escape(new.name)} beside {escape(old.name)}</h2>{plot}<p>{note}</p>"


def markdown(cells: Mapping[Cell, dict]) -> str:
    """Tokens per second as a table for a README: a row for each point, a column for each arm, the best in bold."""
    arms = in_order(cell.arm for cell in cells)
    lines = ["| context | requests at once | " + " | ".join(arms) + " |", "|" + "---|" * (len(arms) + 2)]
    for context, count in points(cells):
        speeds = {
            c.arm: r["median"]["tokens_per_s"]
            for c, r in cells.items()
            if (c.context, c.concurrency) == (context, count)
        }
        best = max(speeds.values())
        texts = [_speed(speeds.get(arm), best) for arm in arms]
        lines.append(f"| {context or 'questions'} | {count} | " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n"


def _speed(speed: float | None, best: float) -> str:
    if speed is None:
        return "-"
    return f"**{speed:.0f}**" if speed == best else f"{speed:.0f}"
