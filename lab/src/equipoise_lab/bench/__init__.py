"""Benchmarks against other libraries, interleaved in one run."""
