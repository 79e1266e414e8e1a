"""`python -m equipoise_lab` is the command `equipoise-lab`."""

from .cli import main

main()
