"""TODO: what stoilo.server.validation holds."""
