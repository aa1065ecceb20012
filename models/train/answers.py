"""The target's answers: written once, kept in a file, read by a run that goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from models.train.corpus import Conversation
from models.train.generate import generate, greedy
from models.train.target import Target
from tests.simulation.chat import Chat

_MIN_ANSWER = 4


def write_answers(
    target: Target,
    chat: Chat,
    questions: Sequence[str],
    limit: int,
    batch: int,
    enough: Callable[[int, int, int], bool],
) -> list[Conversation]:
    """Greedy answers of at most `limit` tokens; those of fewer than _MIN_ANSWER are left out.

    enough: asked after each batch with the numbers of answers, of their tokens, and of all tokens; ends it.
    """
    prompts = [chat.prompt_ids(question) for question in questions]
    talks: list[Conversation] = []
    tokens = positions = 0
    for indices, rows in generate(target, prompts, limit, chat.eos_token_ids, greedy, batch):
        for i, row in zip(indices, rows, strict=True):
            if len(row) >= _MIN_ANSWER:
                talks.append(Conversation(prompts[i], row))
                tokens, positions = tokens + len(row), positions + len(prompts[i]) + len(row)
        if enough(len(talks), tokens, positions):
            break
    return talks


def store(talks: Sequence[Conversation], path: Path) -> None:
    """Write conversations as three int32 tensors: all tokens, and the lengths of prompts and answers."""
    state = {
        "tokens": torch.tensor([token for talk in talks for token in (*talk.prompt, *talk.answer)], dtype=torch.int32),
        "prompts": torch.tensor([len(talk.prompt) for talk in talks], dtype=torch.int32),
        "answers": torch.tensor([len(talk.answer) for talk in talks], dtype=torch.int32),
    }
    aside = path.with_suffix(".new")
    torch.save(state, aside)
    aside.replace(path)


def load(path: Path) -> list[Conversation]:
    """What `store` wrote."""
    state = torch.load(path, weights_only=True)
    tokens, talks, begin = state["tokens"].tolist(), [], 0
    for prompt, answer in zip(state["prompts"].tolist(), state["answers"].tolist(), strict=True):
        middle, end = begin + prompt, begin + prompt + answer
        talks.append(Conversation(tokens[begin:middle], tokens[middle:end]))
        begin = end
    return talks
