"""The nets of §6.1 for letters, words and images, each for many replicas at once."""
