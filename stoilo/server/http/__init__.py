"""TODO: what stoilo.server.http holds."""
