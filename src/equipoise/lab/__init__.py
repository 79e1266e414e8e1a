"""The laboratory: everything for the paper and for experiments. The core never imports it."""
