"""`stoilo boinc install`: what a stock BOINC project needs to be an engine of ours.

`facts` reads the project, `plan` says what has to be done (pure), `apply` does it;
`config_rules`, `levels` and `app_versions` hold what a project must look like.
"""
