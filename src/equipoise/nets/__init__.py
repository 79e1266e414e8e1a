"""The nets of §6.1, each for E replicas at once."""
