"""One training run from start to end: questions, answers, features, steps, exam."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

import torch

from models.errors import ModelError
from models.train import answers
from models.train.corpus import Conversation, Corpus
from models.train.drafter import Drafter, add_layers
from models.train.exam import Exam
from models.train.layers import read_checkpoint
from models.train.loop import Pace, Trainer
from models.train.output import write_drafter
from models.train.questions import Questions, make_questions
from models.train.target import Target
from tests.simulation.chat import Chat
from tests.simulation.defaults import QUESTIONS

#: Share of the time after which no more answers are begun, and seconds kept for the last exam.
_ANSWERS_END = 0.35
_EXAM_SECONDS = 15.0
#: Positions whose features are kept on the device: 14 million of 2880 numbers in bf16 are 81 GB.
_MAX_POSITIONS = 14_000_000
_TEACHER_TOP_K = 16


@dataclass(frozen=True)
class Plan:
    """What decides the questions and answers; a work folder belongs to one plan."""

    target: str
    questions: int
    held_out: int
    answer_tokens: int
    exam_tokens: int
    seed: int


class Run:
    """Times every stage and tells of it; `report` is what training.json holds.

    generated: sequences that the device writes at once.
    """

    def __init__(self, plan: Plan, generated: int, start: Path, work: Path, output: Path, device: str) -> None:
        self._plan, self._generated, self._device = plan, generated, device
        self._target_dir, self._start_dir, self._work, self._output = Path(plan.target), start, work, output
        self._begun = time.monotonic()
        self._dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self.report: dict = {
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
            "torch": torch.__version__,
            "plan": asdict(plan) | {"target": self._target_dir.name},
            "seconds": {},
        }

    def execute(self, pace: Pace, layers: int | None) -> None:
        """Run all stages; `pace.seconds` is the time of everything together, `layers` the drafter's depth."""
        self._open_work()
        chat, target = Chat(self._target_dir), Target.load(self._target_dir, self._device, self._dtype)
        drafter = self._drafter(target, layers)
        questions = self._questions(target, chat)
        exams = self._exams(chat, questions, drafter)
        talks = self._answers(target, chat, questions, pace.seconds)
        corpus = self._corpus(target, talks, drafter)
        left = max(1.0, pace.seconds - self._elapsed() - _EXAM_SECONDS)
        self._train(Trainer(drafter, corpus, target.head, pace.within(left), self._plan.seed), exams)

    def _elapsed(self) -> float:
        return time.monotonic() - self._begun

    def _say(self, stage: str, text: str) -> None:
        print(f"{self._elapsed():6.1f} s  {stage:9}  {text}", flush=True)

    def _done(self, stage: str, since: float, text: str) -> None:
        self.report["seconds"][stage] = round(self._elapsed() - since, 1)
        self._say(stage, text)

    def _open_work(self) -> None:
        self._work.mkdir(parents=True, exist_ok=True)
        note, plan = self._work / "plan.json", asdict(self._plan)
        if note.exists() and json.loads(note.read_text()) != plan:
            raise ModelError(f"--work {self._work} holds a run of another plan ({note}); name another folder.")
        note.write_text(json.dumps(plan, indent=1) + "\n")

    def _drafter(self, target: Target, layers: int | None) -> Drafter:
        config, weights = read_checkpoint(self._start_dir)
        if layers is not None:
            config, weights = add_layers(config, weights, layers)
        return Drafter(config, weights, target.embedding, self._dtype)

    def _questions(self, target: Target, chat: Chat) -> Questions:
        since, plan, file = self._elapsed(), self._plan, self._work / "questions.json"
        if not file.exists():
            made = make_questions(target, chat, plan.questions, plan.held_out, self._generated, plan.seed, QUESTIONS)
            file.write_text(json.dumps(asdict(made), indent=1) + "\n", encoding="utf-8")
        questions = Questions(**json.loads(file.read_text(encoding="utf-8")))
        counts = {"training": len(questions.training), "held_out": len(questions.held_out)}
        self.report["questions"] = counts
        self._done("questions", since, f"{counts['training']} to learn from, {counts['held_out']} held out")
        return questions

    def _exams(self, chat: Chat, questions: Questions, drafter: Drafter) -> dict[str, Exam]:
        since, plan = self._elapsed(), self._plan
        torch.set_float32_matmul_precision("highest")
        exact = Target.load(self._target_dir, self._device, torch.float32)
        exams = {
            name: Exam(exact, chat, asked, drafter, plan.exam_tokens, self._generated)
            for name, asked in (("held_out", questions.held_out), ("ordinary", QUESTIONS))
        }
        self.report["start"] = {name: exam.take(drafter.weights) for name, exam in exams.items()}
        self._done("exam", since, f"before training: {self._figures('start')}")
        return exams

    def _answers(self, target: Target, chat: Chat, questions: Questions, seconds: float) -> list[Conversation]:
        since, file = self._elapsed(), self._work / "answers.pt"

        def enough(count: int, tokens: int, positions: int) -> bool:
            speed = tokens / (self._elapsed() - since)
            self._say("answers", f"{count} answers, {tokens} tokens, {speed:.0f} per second")
            return positions > _MAX_POSITIONS or self._elapsed() > _ANSWERS_END * seconds

        if file.exists():
            talks = answers.load(file)
        else:
            # The factors of 16-bit states are exact in the device's 19-bit format, and the sums are fp32.
            torch.set_float32_matmul_precision("high")
            limit, batch = self._plan.answer_tokens, self._generated
            talks = answers.write_answers(target, chat, questions.training, limit, batch, enough)
            answers.store(talks, file)
        if not talks:
            raise ModelError("No answer is long enough to learn from; raise --questions or --answer-tokens.")
        self._done("answers", since, f"{len(talks)} in all")
        return talks

    def _corpus(self, target: Target, talks: list[Conversation], drafter: Drafter) -> Corpus:
        since = self._elapsed()
        torch.set_float32_matmul_precision("high")
        if self._device == "cuda":
            torch.cuda.empty_cache()
        corpus = Corpus(target, talks, drafter.layer_ids, _TEACHER_TOP_K)
        torch.set_float32_matmul_precision("highest")
        self.report["answers"] = {"count": len(corpus), "tokens": corpus.answer_tokens}
        self._done("features", since, f"{corpus.total} positions, {corpus.answer_tokens} of them answers")
        return corpus

    def _train(self, trainer: Trainer, exams: dict[str, Exam]) -> None:
        since, drafter = self._elapsed(), trainer.drafter
        state = self._work / f"state-{drafter.shape.layers}.pt"
        if state.exists():
            trainer.restore(state)
            self._say("training", f"goes on at step {trainer.step}")
        first = trainer.step

        def save(trainer: Trainer) -> None:
            speed = (trainer.step - first) / (self._elapsed() - since)
            trainer.store(state)
            budgets = {} if trainer.progress >= 1 else {"budgets": (16,)}
            self.report["trained"] = {name: exam.take(drafter.weights, **budgets) for name, exam in exams.items()}
            self.report["training"] = trainer.facts() | {"steps_per_second": round(speed, 2)}
            self.report["better"] = self._better()
            text = f"step {trainer.step}, {speed:.1f} per second, loss {trainer.loss:.3f}, {self._figures('trained')}"
            self._done("training", since, text)
            write_drafter(self._output, drafter.config, drafter.weights, self.report)

        trainer.run(save)
        verdict = "longer" if self.report["better"] else "no longer"
        self._say("result", f"accept lengths on held-out questions are {verdict} than before training")

    def _better(self) -> bool:
        """Longer accept lengths on held-out questions, as a chain and as a tree of 16."""
        start, trained = self.report["start"]["held_out"], self.report["trained"]["held_out"]
        return all(trained[name] > start[name] for name in ("chain", "tree16")) and math.isfinite(trained["loss"])

    def _figures(self, when: str) -> str:
        return "; ".join(
            f"{name} chain {taken['chain']:.3f} tree16 {taken['tree16']:.3f} loss {taken['loss']:.3f}"
            for name, taken in self.report[when].items()
        )
