"""The language layer and the kernel layer."""
