"""Scaling methods on a GPU, in Triton."""
