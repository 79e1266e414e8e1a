"""The Gaussian solve on the CPU, in C."""
