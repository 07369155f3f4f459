"""TODO: what stoilo.server.operations holds."""
