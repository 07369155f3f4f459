"""TODO: what stoilo.server.app holds."""
