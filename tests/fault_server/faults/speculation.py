"""Faults of the drafter and the tree, and in how acceptance is reported."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from ..behaviour import Good, Json, Running
from ..engine import Completion, Request
from ..recording import Trajectory


class DrafterOnWrongLayers(Good):
    """The drafter reads other layers than it was trained on: hardly a draft is accepted."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        pieces = trajectory.pieces
        cuts = [i for i in range(len(pieces) + 1) if i % 8 != 3]
        steps = tuple(tuple(pieces[a:b]) for a, b in zip(cuts, cuts[1:], strict=False))
        return replace(trajectory, steps=steps, surplus=0)


class AcceptsTooMuch(Good):
    """Verification lets pass what the target would not say: two steps in one."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        first, *rest = trajectory.steps
        pairs = (rest[i : i + 2] for i in range(0, len(rest), 2))
        return replace(trajectory, steps=(first, *(sum(pair, ()) for pair in pairs)))


class SampledAcceptsTooLittle(Good):
    """At a temperature above 0 no draft is accepted."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        if not request.temperature:
            return trajectory
        return replace(trajectory, steps=tuple((piece,) for piece in trajectory.pieces), surplus=0)


class _Meta(Good):
    def replied(self, path: str, status: int, body: Any) -> tuple[int, Any]:
        if path == "/generate" and status == 200 and "spec_verify_ct" in body["meta_info"]:
            self.change(body["meta_info"])
        return status, body

    def change(self, meta: Json) -> None:
        raise NotImplementedError


class DrafterIdle(_Meta):
    """The server names an algorithm and decodes without its drafter."""

    def change(self, meta: Json) -> None:
        for name in [name for name in meta if name.startswith("spec_")]:
            del meta[name]


class HistogramOfOtherSteps(_Meta):
    """The histogram of accepted drafts counts a step more."""

    def change(self, meta: Json) -> None:
        meta["spec_correct_drafts_histogram"][0] += 1


class AcceptLengthWithoutBonus(_Meta):
    """The reported accept length leaves the bonus token out."""

    def change(self, meta: Json) -> None:
        meta["spec_accept_length"] -= 1


class DraftsCountedTwice(_Meta):
    """Accepted drafts are counted twice, in the sum and in the histogram alike."""

    def change(self, meta: Json) -> None:
        meta["spec_num_correct_drafts"] *= 2
        doubled = [0] * (2 * len(meta["spec_correct_drafts_histogram"]))
        doubled[::2] = meta["spec_correct_drafts_histogram"]
        meta["spec_correct_drafts_histogram"] = doubled


class _Metrics(Good):
    def replied(self, path: str, status: int, body: Any) -> tuple[int, Any]:
        return (status, self.change(body)) if path == "/metrics" else (status, body)

    def change(self, page: str) -> str:
        raise NotImplementedError


class MetricsAbsent(Good):
    """No metrics are served."""

    def replied(self, path: str, status: int, body: Any) -> tuple[int, Any]:
        return (404, {"detail": "Not Found"}) if path == "/metrics" else (status, body)


class GaugeRenamed(_Metrics):
    """The gauge of the accept length has another name."""

    def change(self, page: str) -> str:
        return page.replace("sglang:spec_accept_length{", "sglang:accept_length{")


class GaugeOfDrafts(_Metrics):
    """The gauge counts proposed drafts as accepted."""

    def change(self, page: str) -> str:
        return re.sub(r"(sglang:spec_accept_length\{.*\}) .*", r"\1 7.9", page)


class PassesRenamed(_Metrics):
    """The counter of decode passes has another name."""

    def change(self, page: str) -> str:
        return page.replace("sglang:cuda_graph_passes_total{", "sglang:forward_passes_total{")


class EagerSteps(_Metrics):
    """Steps fall back from CUDA graphs without a word."""

    def change(self, page: str) -> str:
        return re.sub(r"(sglang:ddtree_eager_steps_total\{.*\}) .*", r"\1 17.0", page)


class EagerStepsUncounted(_Metrics):
    """Nothing counts the steps that fall back from CUDA graphs."""

    def change(self, page: str) -> str:
        return "".join(line for line in page.splitlines(keepends=True) if "ddtree_eager_steps_total" not in line)


class MetricsLoseRequests(Good):
    """The counters miss the steps of every second request."""

    def __init__(self):
        self._seen = 0

    def counted(self, completion: Completion) -> Completion:
        self._seen += 1
        return completion if self._seen % 2 else replace(completion, drafts=())


class SchedulerCountsRejectedDrafts(Good):
    """The scheduler counts two tokens a step that were never committed."""

    def counted(self, completion: Completion) -> Completion:
        return replace(completion, drafts=tuple(accepted + 2 for accepted in completion.drafts))
