"""The kernel layer: what Linux holds a run with, as if there were no language layer."""
