"""TODO: what stoilo.server.reviews holds."""
