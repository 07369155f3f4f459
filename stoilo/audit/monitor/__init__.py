"""Watch a log from outside: believe a policy and what was seen before, nothing else."""
