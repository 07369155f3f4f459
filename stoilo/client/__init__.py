"""Capture by source and the researcher's API: see `stoilo.connect`."""
