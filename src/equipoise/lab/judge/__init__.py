"""Judge the paper's claims by the records."""
