"""One interface, two BOINC engines."""
