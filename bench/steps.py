"""Steps counted apart from time: the arithmetic from a server's answers to tokens per second and ms per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.errors import BenchError

MEASURES = ("tokens_per_s", "full_batch_tokens_per_s", "accept_length", "ms_per_step")


@dataclass(frozen=True)
class Answer:
    """One completion. `steps` are decode steps of the target, prefill is none; `decode_s` is the time that they
    took, `latency_s` the time that the whole answer took, both in seconds."""

    tokens: int
    steps: int
    decode_s: float
    latency_s: float

    @classmethod
    def of(cls, meta: dict, prefill: dict, speculative: bool) -> Answer:
        """From a server's `meta_info` of the answer, and of the same prompt answered with a single token.

        Raises BenchError when the server did not speculate although it should.
        """
        tokens, latency_s = meta["completion_tokens"], meta["e2e_latency"]
        if speculative and not meta.get("spec_verify_ct"):
            raise BenchError("meta_info has no spec_verify_ct: the server decodes without its drafter")
        # Without speculation every token but the one that prefill gives is a step.
        steps = meta["spec_verify_ct"] if speculative else tokens - 1
        return cls(tokens, steps, latency_s - prefill["e2e_latency"], latency_s)


@dataclass(frozen=True)
class Wave:
    """Answers to requests that were sent together, and the seconds until all were there; `tokens` are their ids."""

    answers: tuple[Answer, ...]
    wall_s: float
    tokens: tuple[tuple[int, ...], ...] = ()

    @property
    def first(self) -> Answer:
        """The answer that was finished first: the only one that had the whole batch beside it to its end."""
        return min(self.answers, key=lambda answer: answer.latency_s)


def sample(waves: Sequence[Wave], speculative: bool) -> dict[str, float | int | None]:
    """Counts, times and rates of equally large waves.

    tokens_per_s: tokens over the time that the client waited; it includes prefill and, in waves of several
        requests, the end of the wave, when the slower answers run in a smaller batch.
    accept_length: tokens per verify step as the server counts them; None without speculation.
    ms_per_step: of the full batch, from each wave's first answer.
    full_batch_tokens_per_s: what the full batch commits: requests x decoded tokens per step / time per step.
    """
    answers = [answer for wave in waves for answer in wave.answers]
    tokens, steps = sum(a.tokens for a in answers), sum(a.steps for a in answers)
    wall_s = sum(wave.wall_s for wave in waves)
    step_s = sum(wave.first.decode_s for wave in waves) / sum(wave.first.steps for wave in waves)
    per_step = (tokens - len(answers)) / steps  # without the token that prefill gives each
    return {
        "requests": len(answers),
        "tokens": tokens,
        "steps": steps,
        "wall_s": round(wall_s, 4),
        "tokens_per_s": round(tokens / wall_s, 2),
        "full_batch_tokens_per_s": round(len(waves[0].answers) * per_step / step_s, 2),
        "accept_length": round(tokens / steps, 4) if speculative else None,
        "ms_per_step": round(step_s * 1000, 4),
    }


def medians(samples: Sequence[dict]) -> dict[str, float | None]:
    """Median of every measure over the repetitions."""
    columns = {key: [sample[key] for sample in samples] for key in MEASURES}
    return {key: None if None in values else round(median(values), 4) for key, values in columns.items()}


def ratio(ours: Sequence[dict], baseline: Sequence[dict], measure: str) -> dict[str, float | list[float]]:
    """One arm over another in one measure: of the medians, and of each repetition's pair.

    The arms of a repetition ran right after each other, so the pairs show how steady the ratio is.
    """
    pairs = [round(a[measure] / b[measure], 4) for a, b in zip(ours, baseline, strict=True)]
    return {"of_medians": round(medians(ours)[measure] / medians(baseline)[measure], 4), "pairs": pairs}


def compared(names: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs (arm, baseline) whose ratio is of interest: every arm over AR and chain, graphs over eager."""
    pairs = [(arm, base) for base in ("ar", "chain") if base in names for arm in names if arm not in ("ar", base)]
    return pairs + [(arm, f"{arm}:eager") for arm in names if f"{arm}:eager" in names]
