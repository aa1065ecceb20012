"""From samples to the ratios in the document and the table on the screen."""

from __future__ import annotations

from bench.stages import STAGES
from bench.steps import MEASURES, compared, ratio


def ratios(samples: dict[str, list[dict]]) -> dict[str, dict]:
    """Ratios in speed and in time per step, by pair of arms."""
    return {
        f"{arm} / {base}": {m: ratio(samples[arm], samples[base], m) for m in MEASURES if m != "accept_length"}
        for arm, base in compared(list(samples))
    }


def table(document: dict) -> str:
    """Medians of all arms, the losing ones included, with their speed over AR and chain."""
    lines = [
        f"{'conc':>4}  {'arm':<20}{'tok/s':>9}{'full batch':>12}{'accept':>8}{'ms/step':>9}{'/ar':>7}{'/chain':>8}"
    ]
    for count, pairs in document["ratios"].items():
        for name, arm in document["arms"].items():
            row = arm["median"][count]
            over = [pairs.get(f"{name} / {base}") for base in ("ar", "chain")]
            speeds = [f"{pair['tokens_per_s']['of_medians']:.3f}" if pair else "-" for pair in over]
            accept = "-" if row["accept_length"] is None else f"{row['accept_length']:.3f}"
            lines.append(
                f"{count:>4}  {name:<20}{row['tokens_per_s']:>9.1f}{row['full_batch_tokens_per_s']:>12.1f}"
                f"{accept:>8}{row['ms_per_step']:>9.3f}{speeds[0]:>7}{speeds[1]:>8}"
            )
    return "\n".join(lines + stage_table(document))


def stage_table(document: dict) -> list[str]:
    """Stage times of the profiled trees; empty without them."""
    profiled = {name: arm["stages"] for name, arm in document["arms"].items() if arm["stages"]}
    if not profiled:
        return []
    lines = ["", f"{'conc':>4}  {'ms per step':<20}" + "".join(f"{stage:>9}" for stage in (*STAGES, "sum"))]
    for name, counts in profiled.items():
        for count, row in counts.items():
            figures = "".join(f"{row[f'{stage}_ms']:>9.3f}" for stage in (*STAGES, "sum"))
            lines.append(f"{count:>4}  {name:<20}{figures}")
    return lines
