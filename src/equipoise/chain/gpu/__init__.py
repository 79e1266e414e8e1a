"""The chain on a GPU, in Triton."""
