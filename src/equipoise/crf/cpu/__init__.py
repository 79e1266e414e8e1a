"""The C code of the layers for a CPU."""
