"""Rehearsals of what could happen to a project: done for real, on a throw-away one."""
