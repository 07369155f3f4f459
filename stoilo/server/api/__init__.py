"""TODO: what stoilo.server.api holds."""
