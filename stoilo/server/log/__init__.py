"""TODO: what stoilo.server.log holds."""
