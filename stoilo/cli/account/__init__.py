"""`stoilo account`: who may use a server."""
