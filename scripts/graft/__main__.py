"""`python -m graft`."""

from graft.cli import main

main()
