"""Where tasks run: threads here, simulated volunteers, or a server with real ones."""
