"""The nets of §6.1: letters for many replicas at once, words for one."""
