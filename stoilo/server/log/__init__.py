"""From what happened to the audit log: the outbox, the leaves, the public records."""
