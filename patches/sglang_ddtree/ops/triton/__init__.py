"""Triton tree operations; :mod:`..reference` defines what each computes."""
