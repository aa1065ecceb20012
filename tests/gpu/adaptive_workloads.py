"""What the engine matrix asks of a server that chooses a tier for each batch size."""

from __future__ import annotations

import statistics
from concurrent.futures import ThreadPoolExecutor

from tests.gpu.engine_workloads import REFERENCE_TOKENS, Run, draft_kv
from tests.simulation.draft_kv import KV_TOKENS

#: A step of the widest tier takes twice one of the narrowest; a capture or a compilation takes a tenth of a second.
STALL_FACTOR, STALL_SECONDS = 3, 0.03


def draft_kv_after_plain_steps(run: Run) -> dict:
    """The same for an answer whose beginning was decoded without speculation, beside another request."""
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(run.server.ask, run.prompts[2], KV_TOKENS // 2)
        found = draft_kv(run)
        beside.result()
    plain = run.server.engine_state()["ddtree_tiers"]["ar"]["steps"]
    if plain < KV_TOKENS // 4:
        run.faults.append(f"only {plain} steps were without speculation")
    return found | {"plain_steps": plain}


def tiers_used(run: Run) -> dict:
    """What the workloads before this one ran as: every tier of the table, with graphs captured once, at start."""
    state = run.server.engine_state()
    unused = [name for name, counts in state["ddtree_tiers"].items() if not counts["steps"]]
    if unused:
        run.faults.append(f"no step ran as {', '.join(unused)}: the batch sizes never reached those tiers")
    if state["ddtree_recaptures"]:
        run.faults.append(f"graphs were captured {state['ddtree_recaptures']} times after the start")
    return {"tiers": state["ddtree_tiers"], "recaptures": state["ddtree_recaptures"]}


def switches(run: Run) -> dict:
    """One answer is streamed while those beside it end one after another: no token may come late at a switch."""
    before = run.server.engine_state()["ddtree_tiers"]
    others = [12 * number for number in range(1, 15)]
    with ThreadPoolExecutor(len(others)) as pool:
        beside = [pool.submit(run.server.ask, run.prompts[n % len(run.prompts)], t) for n, t in enumerate(others)]
        times = run.server.stream_times(run.prompts[-1], REFERENCE_TOKENS)
        for each in beside:
            each.result()
    after = run.server.engine_state()["ddtree_tiers"]
    used = [name for name in after if after[name]["steps"] > before[name]["steps"]]
    # The others' prefills lie before the first token or right behind it.
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)][5:]
    median, longest = statistics.median(gaps), max(gaps)
    if len(used) < 2:
        run.faults.append(f"switches: only the tier {used} was used")
    if longest > STALL_FACTOR * median + STALL_SECONDS:
        run.faults.append(
            f"a token came {longest * 1e3:.1f} ms after the one before it, the median is {median * 1e3:.1f}"
        )
    return {"tiers": used, "median_gap_ms": round(median * 1e3, 2), "longest_gap_ms": round(longest * 1e3, 2)}


WORKLOADS = {function.__name__: function for function in (draft_kv_after_plain_steps, tiers_used, switches)}
