"""The language layer: which source compiles, and what guards decide while it runs."""
