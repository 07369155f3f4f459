"""What a jailed child can be asked to do."""

from __future__ import annotations

__all__ = ["PROBE_JOB", "TASK_JOB"]

TASK_JOB = "stoilo.sandbox.jobs.task"
PROBE_JOB = "stoilo.sandbox.jobs.probe"
"""The one job without a language layer, and the one that may run in errno mode."""
