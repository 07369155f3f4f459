"""A BOINC-compatible project in Python."""
