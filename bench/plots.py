"""The report's plots as SVG text, drawn by matplotlib."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import LogLocator, ScalarFormatter  # noqa: E402

from bench.arms import in_order, parse_arms  # noqa: E402
from bench.claims import Standing  # noqa: E402
from bench.cost_model import Model, Point  # noqa: E402
from bench.stages import STAGES  # noqa: E402
from bench.store import Cell  # noqa: E402

plt.rcParams.update(
    {"svg.hashsalt": "bench", "svg.fonttype": "path", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}
)
WIDTH, HEIGHT = 5.2, 3.4  # inches of one panel
LEGEND_COLUMNS = 3


def throughput(cells: Mapping[Cell, dict]) -> str:
    """Tokens per second over concurrency, a panel for each context, a line for each arm, intervals as bars."""
    contexts = sorted({cell.context for cell in cells})
    figure, panels = _panels(len(contexts))
    for panel, context in zip(panels, contexts, strict=True):
        for arm in in_order(cell.arm for cell in cells):
            mine = [(c.concurrency, found) for c, found in cells.items() if (c.context, c.arm) == (context, arm)]
            if mine:
                _line(panel, arm, *zip(*mine, strict=True))
        panel.set(
            title=context_name(context), xlabel="requests at once", ylabel="output tokens per second", yscale="log"
        )
        _log2(panel, sorted({c.concurrency for c in cells}))
    panels[0].legend(fontsize=8)
    return _svg(figure)


def accept_lengths(cells: Mapping[Cell, dict]) -> str | None:
    """Accept length over the tree's budget by top-k, one panel per context, the chain as a line across.

    None without a tree.
    """
    rows: dict[int, dict[str, dict[int | None, list[float]]]] = {}
    for cell, found in cells.items():
        (arm,) = parse_arms(cell.arm)
        if found["median"]["accept_length"] is not None and arm.kind != "adaptive":
            key = "chain" if arm.kind == "chain" else f"tree, top-k {arm.top_k}"
            at = rows.setdefault(cell.context, {}).setdefault(key, {})
            at.setdefault(arm.budget, []).append(found["median"]["accept_length"])
    if not any(key != "chain" for keys in rows.values() for key in keys):
        return None
    figure, panels = _panels(len(rows))
    for panel, (context, keys) in zip(panels, sorted(rows.items()), strict=True):
        _accept_panel(panel, keys)
        panel.set(
            xlabel="budget (nodes without the root)", ylabel="tokens per verify step", title=context_name(context)
        )
    return _svg(figure)


def _accept_panel(panel, keys: Mapping[str, Mapping[int | None, Sequence[float]]]) -> None:
    for key, budgets in sorted(keys.items()):
        if key == "chain":
            panel.axhline(_mean(budgets[None]), color="black", linestyle="--", label="chain")
        else:
            xs = sorted(budgets)
            panel.plot(xs, [_mean(budgets[x]) for x in xs], marker="o", label=key)
    panel.legend(fontsize=8)


def stages(split: Mapping[str, Mapping[str, dict]]) -> str:
    """Stacked bars of a step's stages, one for each tree and concurrency; for stages that wait for each other."""
    bars = {f"{name}, {count} at once": row for name, counts in split.items() for count, row in counts.items()}
    parts = {stage: [row[f"{stage}_ms"] for row in bars.values()] for stage in STAGES}
    return _stacked(list(bars), parts, "milliseconds per step, each stage waited for")


def starts(document: dict) -> str:
    """Stacked bars of the phases of each start, in the order in which they were made."""
    bars = {f"start {number} ({start['kind']})": start for number, start in enumerate(document["starts"], 1)}
    phases = dict.fromkeys(phase for start in bars.values() for phase in start["phases_s"])
    parts = {phase: [start["phases_s"].get(phase, 0.0) for start in bars.values()] for phase in phases}
    return _stacked(list(bars), parts, "seconds until ready")


def _stacked(names: Sequence[str], parts: Mapping[str, Sequence[float]], unit: str) -> str:
    """A horizontal bar for each name, made of its parts."""
    rows = -(-len(parts) // LEGEND_COLUMNS)
    figure, (panel,) = _panels(1, height=0.8 + 0.45 * len(names) + 0.25 * rows)
    left = [0.0] * len(names)
    for part, sizes in parts.items():
        panel.barh(names, sizes, left=left, label=part, height=0.6)
        left = [a + b for a, b in zip(left, sizes, strict=True)]
    panel.set(xlabel=unit)
    panel.invert_yaxis()
    figure.legend(fontsize=8, ncols=LEGEND_COLUMNS, loc="outside upper center")
    return _svg(figure)


def costs(points: Sequence[Point], model: Model) -> str:
    """Measured steps over the nodes that they verify, and the fitted model as lines, one for each batch."""
    contexts = sorted({point.context for point in points})
    figure, panels = _panels(len(contexts))
    for panel, context in zip(panels, contexts, strict=True):
        here = [point for point in points if point.context == context]
        for number, batch in enumerate(sorted({p.batch for p in here})):
            colour = f"C{number}"
            for kind, marker in (("ar", "s"), ("chain", "^"), ("tree", "o")):
                mine = [p for p in here if (p.kind, p.batch) == (kind, batch)]
                panel.scatter(
                    [p.width for p in mine], [p.ms for p in mine], color=colour, marker=marker, s=22, zorder=3
                )
            if "tree" in model.own:
                widths = range(2, max(p.width for p in here) + 1)
                fitted = [model.ms("tree", batch, width, context) for width in widths]
                panel.plot(widths, fitted, color=colour, label=f"{batch} at once, tree as fitted")
        panel.set(title=context_name(context), xlabel="nodes verified for each request", ylabel="milliseconds per step")
    for kind, marker in (("ar", "s"), ("chain", "^"), ("tree", "o")):
        panels[0].scatter([], [], color="grey", marker=marker, label=f"{kind}, measured")
    panels[0].legend(fontsize=7)
    return _svg(figure)


def envelope(best: Mapping[tuple[int, int], Standing], over: Mapping[tuple[int, int], float]) -> str:
    """A grid of points: which arm is the best there, its speed over ar, and whether that is a claim or a reading."""
    contexts, counts = (sorted({point[i] for point in best}) for i in (0, 1))
    figure, (panel,) = _panels(1, width=1.6 + 1.35 * len(counts), height=1.2 + 0.75 * len(contexts))
    grid = [[over.get((context, count), float("nan")) for count in counts] for context in contexts]
    drawn = panel.imshow(grid, cmap="RdYlGn", vmin=0.5, vmax=1.5, aspect="auto", alpha=0.6)
    for y, context in enumerate(contexts):
        for x, count in enumerate(counts):
            if (context, count) in best:
                gain = over.get((context, count))
                said = best[context, count].over.get("ar", {"verdict": "not in turns"})["verdict"]
                plain = not gain or best[context, count].arm == "ar"
                text = best[context, count].arm + ("" if plain else f"\n{gain:.2f} of ar\n{said}")
                panel.text(x, y, text, ha="center", va="center", fontsize=8)
    panel.set_xticks(range(len(counts)), counts)
    panel.set_yticks(range(len(contexts)), [context_name(context) for context in contexts])
    panel.set(xlabel="requests at once")
    panel.grid(False)
    figure.colorbar(drawn, label="speed over ar")
    return _svg(figure)


def comparison(ratios: Mapping[Cell, tuple[float, list[float] | None]]) -> str:
    """Speed of one run over another, cell by cell, with intervals; a bar that crosses 1 shows no change."""
    labels = [f"{c.arm}, {context_name(c.context)}, {c.concurrency} at once" for c in ratios]
    figure, (panel,) = _panels(1, height=1.0 + 0.28 * len(labels))
    for y, (ratio, bounds) in enumerate(ratios.values()):
        low, high = bounds or [ratio, ratio]
        colour = "C2" if low > 1 else "C3" if high < 1 else "grey"
        panel.errorbar(ratio, y, xerr=[[max(ratio - low, 0)], [max(high - ratio, 0)]], fmt="o", color=colour, capsize=3)
    panel.axvline(1, color="black", linewidth=0.8)
    panel.set_yticks(range(len(labels)), labels, fontsize=7)
    panel.invert_yaxis()
    panel.set(xlabel="tokens per second, the first over the second")
    return _svg(figure)


def context_name(context: int) -> str:
    return f"context {context}" if context else "questions alone"


def _line(panel, arm: str, counts: Sequence[int], found: Sequence[dict]) -> None:
    middle = [row["median"]["tokens_per_s"] for row in found]
    bounds = [row["interval"]["tokens_per_s"] or [m, m] for row, m in zip(found, middle, strict=True)]
    below = [max(m - low, 0) for m, (low, _) in zip(middle, bounds, strict=True)]
    above = [max(high - m, 0) for m, (_, high) in zip(middle, bounds, strict=True)]
    plain = {"color": "black", "linestyle": "--"} if arm == "ar" else {}
    panel.errorbar(counts, middle, yerr=[below, above], marker="o", markersize=3, capsize=2, label=arm, **plain)


def _log2(panel, counts: Sequence[int]) -> None:
    panel.set_xscale("log", base=2)
    panel.set_xticks(counts, [str(count) for count in counts])
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(ScalarFormatter())
    panel.minorticks_off()


def _panels(count: int, width: float = WIDTH, height: float = HEIGHT):
    figure, axes = plt.subplots(1, count, figsize=(width * count, height), squeeze=False, layout="constrained")
    return figure, list(axes[0])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _svg(figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]
