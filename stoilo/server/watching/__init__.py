"""What an operator sees of a running server: figures, health, readiness."""
