"""`python -m bilevo` is the command line."""

from bilevo.cli import entry

entry()
