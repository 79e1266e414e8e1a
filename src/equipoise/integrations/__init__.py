"""Training frameworks and file formats of others. Each file needs its own extra and is imported by its users only."""
