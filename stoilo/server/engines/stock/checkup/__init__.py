"""`stoilo boinc doctor`: what is wrong with a stock project, and why.

Pure: `snapshot` (what was read), `checks` and `machine` (snapshot → findings). Shell:
`reading` (files and processes), `asking` (database and web).
"""
