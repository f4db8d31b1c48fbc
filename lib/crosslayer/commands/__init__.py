"""A module for each command, with a click command `command`: it parses arguments, calls packages, prints results."""
