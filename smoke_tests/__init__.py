"""Smoke tests for a running SGLang server: what they check is in the names of the files."""
