"""`python -m equipoise_lab.cli`, where the command is not on the path."""

from . import main

main()
