"""C compiled on first use, and whether a tensor's values can be read here."""
