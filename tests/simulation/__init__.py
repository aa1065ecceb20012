"""The accept length that a correct server must report, computed without one.

Target and drafter run in plain torch (fp32, CPU); the walk replays speculative decoding over the greedy
answer that the target is known to give. Nothing here imports SGLang or the plugin: it is their oracle.
"""

from tests.simulation.pair import Answer, Pair, greedy_answer, load_pair, walk
from tests.simulation.walk import Walk, pooled_accept_length

__all__ = ["Answer", "Pair", "Walk", "greedy_answer", "load_pair", "pooled_accept_length", "walk"]
