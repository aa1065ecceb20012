"""Prompts of a given length: each question behind enough notes to fill the context."""

from __future__ import annotations

import random

from bench.errors import BenchError
from bench.prompts import QUESTIONS

_PEOPLE = ("Ada", "Boris", "Chen", "Dora", "Emil", "Fatima", "Goran", "Hana", "Ivo", "Jonas", "Kira", "Luis")
_VERBS = ("repaired", "bought", "painted", "counted", "carried", "sold", "measured", "found", "cleaned", "packed")
_THINGS = ("lamps", "chairs", "ropes", "books", "bottles", "wheels", "maps", "crates", "coats", "clocks", "boats")
_PLACES = ("the harbour", "a mill", "the station", "an orchard", "the workshop", "a school", "the old bridge")
#: More than any note has.
NOTE_TOKENS = 24


class Prompts:
    """Makes prompts in the target's chat format.

    tokenizer: of the target. seed: of the notes; the same seed gives the same prompts.
    """

    def __init__(self, tokenizer, seed: int) -> None:
        self.tokenizer, self.seed = tokenizer, seed
        self._made: dict[tuple[int, int], list[int]] = {}  # every arm asks for the same ones

    @classmethod
    def load(cls, target: str, seed: int) -> Prompts:
        from transformers import AutoTokenizer

        return cls(AutoTokenizer.from_pretrained(target), seed)

    def of(self, context: int, count: int = len(QUESTIONS)) -> list[list[int]]:
        """Token ids of `count` prompts, each as long as `context` tokens to within one note.

        Prompts behind the last question ask the first again, behind other notes. Raises BenchError where a question
        alone is longer.
        """
        for number in range(count):
            if (number, context) not in self._made:
                self._made[number, context] = self._fill(number, context)
        return [self._made[number, context] for number in range(count)]

    def text(self, ids: list[int]) -> str:
        """What to send to a server that tokenises by itself."""
        return self.tokenizer.decode(ids)

    def _fill(self, number: int, context: int) -> list[int]:
        question = QUESTIONS[number % len(QUESTIONS)]
        ids = self._chat(question)
        if len(ids) > context:
            raise BenchError(f"--contexts {context} is shorter than a question ({len(ids)} tokens): name a longer one")
        notes: list[str] = []
        source = random.Random(f"{self.seed} {number}")
        while len(ids) + NOTE_TOKENS <= context:
            # A note has at least eight tokens, so this many cannot be too many by much.
            notes += [_note(source) for _ in range(max(1, (context - len(ids)) // (2 * NOTE_TOKENS)))]
            ids = self._chat(f"Notes: {' '.join(notes)}\n\n{question}")
        return ids

    def _chat(self, text: str) -> list[int]:
        message = [{"role": "user", "content": text}]
        return self.tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=True, return_dict=False)


def _note(source: random.Random) -> str:
    who, did, what, where = (source.choice(words) for words in (_PEOPLE, _VERBS, _THINGS, _PLACES))
    return f"{who} {did} {source.randrange(2, 90)} {what} at {where}."
