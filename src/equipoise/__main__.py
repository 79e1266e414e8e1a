"""`python -m equipoise` is the command `equipoise`."""

from .cli import main

main()
