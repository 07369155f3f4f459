"""A stock BOINC project without BOINC: its tools, tables, daemons and hosts, played.

Faithful where the engine's promises rest on it: the tools' command lines, output and ways
to fail, the states that daemons write and in which order, and what they overwrite. Facts
are those of BOINC's server of August 2026; no code of it is here. What a
live project does is tested with one (``make test-stock``).
"""
