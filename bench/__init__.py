"""Benchmarks of the engine, and the tool that makes a large model pair for them out of the small one."""
