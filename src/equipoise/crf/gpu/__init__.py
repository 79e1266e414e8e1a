"""The steps of `ChainCRF` before and after the chain's own kernels, on a GPU, in Triton."""
