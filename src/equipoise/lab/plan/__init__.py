"""What is to be run: the paper's tables and figures as recipes."""
