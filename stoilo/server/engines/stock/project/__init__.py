"""The project that BOINC's own server runs: its folder, configuration and database."""
