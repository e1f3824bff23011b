"""The command line: the same engine as the server, from the shell."""
