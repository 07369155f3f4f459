"""TODO: what stoilo.server.release holds."""
