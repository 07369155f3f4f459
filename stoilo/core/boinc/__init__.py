"""BOINC's own text forms that both sides of the wire read and write."""
