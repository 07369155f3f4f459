"""One call of a client: who calls, what it reports, what it gets."""
