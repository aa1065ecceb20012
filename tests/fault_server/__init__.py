"""A small SGLang-compatible server that replays recorded answers and misbehaves in one named way at a time."""
