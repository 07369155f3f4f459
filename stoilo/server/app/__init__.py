"""The running server: its parts built and joined, started and stopped in order."""
