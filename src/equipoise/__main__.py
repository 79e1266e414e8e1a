"""`python -m equipoise` is the command `equipoise`. This is the only file outside the lab that imports it."""

from .lab.cli import main

main()
