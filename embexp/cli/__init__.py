"""The command line: a module per command, imported only when the command is used."""
