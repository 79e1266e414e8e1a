"""Run recipes and store the results."""
