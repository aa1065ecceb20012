"""Faults in what the model says."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace

from ..behaviour import Good, Running, gathered
from ..engine import Request
from ..recording import END, Trajectory

# Answers of at least so many tokens are prose rather than a fact.
LONG = 30


def respelled(trajectory: Trajectory, change) -> Trajectory:
    """Every piece of text changed, the end token left alone."""
    return trajectory.saying([piece if piece == END else change(piece) for piece in trajectory.pieces])


def rewritten(trajectory: Trajectory, pattern: str, change) -> Trajectory:
    """The text changed character by character where it matches; `change` keeps the length of what it is given."""
    pieces = [piece for piece in trajectory.pieces if piece != END]
    rest = iter(re.sub(pattern, change, "".join(pieces)))
    changed = ["".join(itertools.islice(rest, len(piece))) for piece in pieces]
    return trajectory.saying(changed + [END] * (len(trajectory.pieces) - len(pieces)))


class Loop(Good):
    """Long answers repeat one phrase, with an acceptance as good as ever."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        if len(trajectory.pieces) < LONG:
            return trajectory
        phrase = itertools.cycle([" and", " so", " on", "."])
        return respelled(trajectory, lambda _: next(phrase))


class LoopWithExcellentAcceptance(Good):
    """Long answers repeat one word, and each step commits eight of it."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        tokens = len(trajectory.pieces)
        if tokens < LONG:
            return trajectory
        steps = [(" and",) * 8] * (tokens // 8)
        return Trajectory(((" And",), *steps, (" and", END)), surplus=0)


class FewWords(Good):
    """Long answers use the same eight words in ever new order."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        if len(trajectory.pieces) < LONG:
            return trajectory
        order = random.Random(1)
        words = (" sky", " is", " blue", " the", " a", " and", " of", ".")
        pieces = [order.choice(words) for _ in trajectory.pieces]
        return trajectory.saying([*pieces[:-2], ".", trajectory.pieces[-1]])


class MixedScripts(Good):
    """Every third word of a long answer comes out in Cyrillic letters."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        if len(trajectory.pieces) < LONG:
            return trajectory
        number = itertools.count()
        return respelled(trajectory, lambda piece: " слово" if next(number) % 3 == 1 and piece != "." else piece)


class WrongFact(Good):
    """A capital is another city."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        return respelled(trajectory, lambda piece: piece.replace("Tokyo", "Kyoto"))


class WrongSum(Good):
    """Results of sums are one too large."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        return rewritten(trajectory, r"(?<== )\d", lambda match: str((int(match.group()) + 1) % 10))


class OtherModel(Good):
    """A model of another training behind the name: right, but in other words."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        first, *rest = trajectory.pieces
        return trajectory.saying([f"Sure! {first}", *rest])


class OneCharacterOfIdentifiers(Good):
    """One character of identifiers is wrong, prose is perfect."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        return rewritten(trajectory, r"(?<=[a-z]-[a-z])\d", lambda _: "w")


class DigitsSwapped(Good):
    """Two digits of long numbers change places."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        return rewritten(trajectory, r"\b\d{6,}\b", lambda match: match.group()[:-2] + match.group()[:-3:-1])


class BracketsOfCode(Good):
    """Closing brackets of code are of the wrong kind."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        return rewritten(trajectory, r"\]", lambda _: "}")


class GarbledScripts(Good):
    """Letters outside the Latin script come out as replacement characters."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        return rewritten(trajectory, "[\u0370-\uffff]", lambda _: "\ufffd")


class CodeThatFails(Good):
    """Functions return one thing too many."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        return respelled(trajectory, lambda piece: " yield" if piece == " return" else piece)


class OneWordOfProse(Good):
    """One word of a very long answer is another, and reads as well."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        pieces, place = trajectory.pieces, 2 * LONG
        if len(pieces) <= place:
            return trajectory
        return trajectory.saying([*pieces[:place], " indeed", *pieces[place + 1 :]])


class WrongWhenCrowded(Good):
    """Answers are wrong only while four requests or more share the batch."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        if request.temperature or request.ignore_eos or not gathered(running, 4):
            return trajectory
        return respelled(trajectory, lambda piece: piece[:-1] + "x")


class CrossTalk(Good):
    """Of requests that overlap, one gets what another was to get."""

    def __init__(self):
        self._last: Trajectory | None = None

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        other, self._last = self._last, trajectory
        mixed_up = other is not None and not request.ignore_eos and gathered(running, 2)
        return other if mixed_up else trajectory


class NeedleLost(Good):
    """What stands in the second half of a long prompt is not seen."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        where = request.prompt.find(trajectory.nonce) / len(request.prompt) if trajectory.nonce else 0
        if where < 0.4 or len(request.prompt_ids) < 1000:
            return trajectory
        return rewritten(trajectory, r"\d", lambda _: "0")


class AlwaysGreedy(Good):
    """The temperature is ignored."""

    def __init__(self):
        self._first: dict[str, Trajectory] = {}

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        return self._first.setdefault(request.key, trajectory) if request.temperature else trajectory


class GreedyVerification(AlwaysGreedy):
    """Only the first token, which the prefill gives, is sampled."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        if not request.temperature:
            return trajectory
        first = trajectory.pieces[0]
        return self._first.setdefault(request.key + first, trajectory)


class HotGarbage(Good):
    """At a temperature above 0 the answer is noise."""

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        if not request.temperature:
            return trajectory
        noise = random.Random("".join(trajectory.pieces))
        return respelled(trajectory, lambda _: noise.choice((" qua", " zx", "lor", "}{", " 7")))


class PrefixCacheOfRejectedDrafts(Good):
    """A prompt that comes again after an answer that was cut short gets another answer."""

    def __init__(self):
        self._cut: set[str] = set()

    def says(self, request: Request, trajectory: Trajectory, running: Running) -> Trajectory:
        if request.prompt not in self._cut:
            if len(trajectory.pieces) >= request.limit:
                self._cut.add(request.prompt)
            return trajectory
        pieces = trajectory.pieces
        last = min(request.limit, len(pieces)) - 1
        return replace(trajectory.saying([*pieces[:last], pieces[last] + "!", *pieces[last + 1 :]]))
