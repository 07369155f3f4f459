"""TODO: what stoilo.server.db holds."""
