"""The Gaussian solve on a GPU, in Triton."""
