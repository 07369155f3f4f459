"""A stock BOINC server as an engine of ours, in the order in which a task passes.

`input_files`, `staging` and `creator` make workunits; BOINC's daemons ask `script_server`
by `script`, and `validator` and `assimilator` answer; `kept`, `verdicts` and `outcomes`
hold what became of results; `rounds` does what BOINC does not by itself; `engine` puts
these together. `project` is what lies on the disk and in the database, `installation` the
operator's commands.
"""
