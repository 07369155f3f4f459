"""Our own volunteer: a BOINC-compatible client of one project."""
