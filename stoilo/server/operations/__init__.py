"""What an operator does beside the running server: accounts, retention, child processes."""
