"""`stoilo boinc install` and `doctor`: what a stock project needs to be an engine of ours.

`facts` reads the project, `plan` says what has to be done (pure), `install` does it;
`config_rules` and `stock.app_versions` hold what a project must look like. `snapshot` adds what
runs and waits, and `checks` says what is wrong, by the same plan (pure).
"""
