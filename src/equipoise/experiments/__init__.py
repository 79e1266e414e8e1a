"""The paper's tables and figures as data (§6): what to run, what was found, and how the two compare."""
