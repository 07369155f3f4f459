"""Answers to the scripts that BOINC's validator and assimilator daemons run."""
