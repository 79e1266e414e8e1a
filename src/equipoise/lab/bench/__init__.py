"""Benchmarks against real peers, interleaved in one run."""
