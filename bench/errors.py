"""The one exception of the benchmarks."""


class BenchError(Exception):
    """One sentence that names the setting and the fix; the command lines print it and exit with 1."""
