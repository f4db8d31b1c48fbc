"""The commands. Each module has a click command `command` that parses arguments, calls packages and prints results."""
