"""Capture by source and the researcher's API."""
