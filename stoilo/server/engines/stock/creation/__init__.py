"""Workunits into BOINC: input files, templates, rows, ``create_work``."""
