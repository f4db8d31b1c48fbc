"""A module a command, each with a click command `command`: words in, calls into the rooms, words out."""
