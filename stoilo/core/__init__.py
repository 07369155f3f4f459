"""Types, skeleton codec, digests, limits and errors: the bottom layer."""
