"""From a request to a workunit: checks, gate, statement, log, signature, in that order."""
