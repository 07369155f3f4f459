"""TODO: what stoilo.server.revocation holds."""
