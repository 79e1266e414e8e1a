"""The chain on the CPU, in C."""
