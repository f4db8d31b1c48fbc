"""`python -m crosslayer` is the `crosslayer` command."""

from crosslayer.cli import main

main()
