"""`stoilo boinc doctor`: what is wrong with a stock project, and why.

`reading`, `database` and `probes` fill a `snapshot`; `checks` lists the checks of it (pure).
"""
