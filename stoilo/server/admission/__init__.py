"""TODO: what stoilo.server.admission holds."""
