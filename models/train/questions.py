"""Ordinary questions: some written from topics and forms, most begun by us and finished by the target."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from models.train.generate import generate, sampler
from models.train.target import Target
from tests.simulation.chat import Chat

_DATA = Path(__file__).parent / "data"
_HELD_OUT_EVERY = 10
#: Longest end of a question that the target may write, in tokens; a longer one is dropped.
_ENDING = 40
_MIN_CHARACTERS = 12


@dataclass(frozen=True)
class Questions:
    """Texts without duplicates; no question to learn from has its topic among those held out."""

    training: list[str]
    held_out: list[str]


def _lines(name: str) -> list[str]:
    return (_DATA / name).read_text(encoding="utf-8").splitlines()


def split_topics() -> tuple[list[str], list[str]]:
    """Topics to learn from, and topics held out: every tenth line of data/topics.txt."""
    topics = _lines("topics.txt")
    held_out = topics[::_HELD_OUT_EVERY]
    return [topic for topic in topics if topic not in held_out], held_out


def written(topics: Sequence[str]) -> list[str]:
    """Every form of data/forms.txt about every topic."""
    return [form.format(topic) for topic in topics for form in _lines("forms.txt")]


def finished(
    target: Target, chat: Chat, topics: Sequence[str], count: int, batch: int, generator: torch.Generator
) -> list[str]:
    """Up to `count` questions whose beginning is ours and whose end the target writes at temperature 1.

    The system turn names a topic, the user turn begins with an opening of data/openings.txt; what the target
    does not end within _ENDING tokens is dropped.
    """
    pick = random.Random(generator.initial_seed())
    openings = pick.choices(_lines("openings.txt"), k=count)
    turns = [
        f"<|im_start|>system\nThe user asks a short question about {pick.choice(topics)}.<|im_end|>\n"
        f"<|im_start|>user\n{opening}"
        for opening in openings
    ]
    prompts = [encoded.ids for encoded in chat.tokenizer.encode_batch(turns, add_special_tokens=False)]
    texts = []
    for indices, rows in generate(target, prompts, _ENDING, chat.eos_token_ids, sampler(generator), batch):
        ended = [(i, row) for i, row in zip(indices, rows, strict=True) if row[-1] in chat.eos_token_ids]
        texts += [(openings[i] + chat.text(row)).strip() for i, row in ended]
    return [text for text in texts if len(text) >= _MIN_CHARACTERS]


def make_questions(
    target: Target, chat: Chat, count: int, held_out_count: int, batch: int, seed: int, excluded: Sequence[str]
) -> Questions:
    """About `count` questions to learn from, a third of them written as far as the topics reach.

    excluded: texts that must be in neither list, such as those of a final test.
    """
    generator = torch.Generator(target.device).manual_seed(seed)
    topics, held_out_topics = split_topics()
    taken = set(excluded)

    def unique(texts: list[str], size: int) -> list[str]:
        fresh = [text for text in dict.fromkeys(texts) if text not in taken]
        random.Random(seed).shuffle(fresh)
        taken.update(fresh[:size])
        return fresh[:size]

    # Held out first: a question that the target writes under both kinds of topic stays out of the training.
    half = held_out_count // 2
    held_out = unique(finished(target, chat, held_out_topics, 2 * half, batch, generator), half)
    held_out += unique(written(held_out_topics), held_out_count - len(held_out))
    training = unique(written(topics), count // 3)
    training += unique(finished(target, chat, topics, count - len(training), batch, generator), count)
    random.Random(seed).shuffle(training)
    return Questions(training, held_out)
