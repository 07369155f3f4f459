"""A stock BOINC server as the work engine."""
