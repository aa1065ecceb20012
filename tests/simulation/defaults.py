"""What the simulation runs by default: the embedded pair on nine ordinary short questions."""

import os
from pathlib import Path

QUESTIONS = (
    "What is the capital of France?",
    "Why does the moon seem to change its shape over a month?",
    "Give me three tips for sleeping better.",
    "How do I boil an egg so that the yolk stays soft?",
    "Write a short poem about rain in a city.",
    "Explain what a database index is to a beginner.",
    "Which is heavier, a litre of water or a litre of oil, and why?",
    "Write a Python function that counts the vowels in a string.",
    "Write a polite email that asks a colleague to move a meeting to Friday.",
)


def pair_dir() -> Path:
    """Folder of the embedded pair, with target/ and drafter/ in it, below CACHE_DIR (default .cache)."""
    return Path(os.environ.get("CACHE_DIR", ".cache")) / "models" / "smollm2-135m"
