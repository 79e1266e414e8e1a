"""Judge the claims of the paper from the records."""
