"""The command line. A module for each command, imported only when it is asked for."""
