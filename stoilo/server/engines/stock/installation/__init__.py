"""`stoilo boinc install`: what a stock BOINC project needs to be an engine of ours.

Pure: `configtext` (edits of config.xml), `settings` (what it must say and why), `daemons`,
`versions`, `templates`, `preferences`, `planning`. Shell: `reading`, `applying`.
"""
