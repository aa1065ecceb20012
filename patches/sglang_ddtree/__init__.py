"""DDTree on SGLang: verify a tree of a DFlash drafter's candidates in one pass of the target.

Vocabulary: block size D (root included), depth L = D-1, top-k K per depth, budget B (tree nodes without the
root), width W = B+1 (nodes that the target verifies), accept length (tokens committed per target step, the
bonus token included).
"""
