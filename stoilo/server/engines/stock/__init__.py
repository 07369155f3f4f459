"""A stock BOINC server as an engine of ours, in the order in which a task passes.

`project` (its folder, config.xml and database), `creation` (workunits into BOINC),
`scripts` (what BOINC's validator and assimilator ask us), `results` (what became of them);
`engine` puts these together. `installation` holds the operator's commands.
"""
