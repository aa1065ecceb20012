"""Completions in the form of each interface, whole and streamed."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator
from typing import Any

from .engine import Completion
from .text import Tokenizer

Json = dict[str, Any]


class Native:
    """The replies of `/generate`."""

    def __init__(self, tokenizer: Tokenizer, draft_tokens: int | None):
        self._tokenizer = tokenizer
        self._draft_tokens = draft_tokens

    def whole(self, completion: Completion) -> Json:
        return {
            "text": completion.text,
            "output_ids": completion.ids,
            "meta_info": self._meta(completion, len(completion.ids)) | self._end(completion),
        }

    def events(self, completion: Completion) -> Iterator[Json]:
        """One for each step, each with the text and tokens so far."""
        tokens = 0
        for step in completion.steps[:-1]:
            tokens += len(step)
            ids = completion.ids[:tokens]
            meta = self._meta(completion, tokens) | {"finish_reason": None}
            yield {"text": self._tokenizer.text(ids), "output_ids": ids, "meta_info": meta}
        yield self.whole(completion)

    def _meta(self, completion: Completion, tokens: int) -> Json:
        return {
            "id": uuid.uuid4().hex,
            "prompt_tokens": completion.prompt_tokens,
            "completion_tokens": tokens,
            "cached_tokens": completion.cached_tokens,
            "num_retractions": 0,
        }

    def _end(self, completion: Completion) -> Json:
        reason: Json = {"type": completion.finish}
        reason |= {"length": len(completion.ids)} if completion.matched is None else {"matched": completion.matched}
        end: Json = {"finish_reason": reason}
        steps = len(completion.drafts)
        if self._draft_tokens is None or not steps:
            return end
        return end | {
            "spec_verify_ct": steps,
            "spec_num_correct_drafts": sum(completion.drafts),
            "spec_num_proposed_drafts": steps * (self._draft_tokens - 1),
            "spec_accept_length": len(completion.ids) / steps,
            "spec_correct_drafts_histogram": completion.histogram,
        }


class Chat:
    """The replies of `/v1/chat/completions`."""

    def __init__(self, tokenizer: Tokenizer, model: str):
        self._tokenizer = tokenizer
        self._model = model

    def whole(self, completion: Completion) -> Json:
        message = {"role": "assistant", "content": completion.text, "tool_calls": None}
        choice = {"index": 0, "message": message, **self._end(completion)}
        return self._frame("chat.completion", [choice]) | {"usage": self._usage(completion)}

    def events(self, completion: Completion) -> Iterator[Json]:
        """The role, one for each step that adds text, the end, the usage."""
        yield self._chunk({"role": "assistant", "content": ""})
        said = ""
        for ids in itertools.accumulate(completion.steps):
            # The text of a stop string's beginning is held back until it is clear what follows.
            text = self._tokenizer.text(list(ids))[: len(completion.text)]
            if text != said:
                yield self._chunk({"content": text[len(said) :]})
                said = text
        yield self._chunk({}, **self._end(completion))
        yield self._frame("chat.completion.chunk", []) | {"usage": self._usage(completion)}

    def _chunk(self, delta: Json, **end: Any) -> Json:
        choice = {"index": 0, "delta": delta, **(end or {"finish_reason": None, "matched_stop": None})}
        return self._frame("chat.completion.chunk", [choice])

    def _frame(self, kind: str, choices: list[Json]) -> Json:
        name = {"id": uuid.uuid4().hex, "object": kind, "created": int(time.time()), "model": self._model}
        return name | {"choices": choices}

    @staticmethod
    def _end(completion: Completion) -> Json:
        return {"finish_reason": completion.finish, "matched_stop": completion.matched}

    @staticmethod
    def _usage(completion: Completion) -> Json:
        tokens = len(completion.ids)
        prompt = completion.prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
