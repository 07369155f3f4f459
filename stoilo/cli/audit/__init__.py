"""`stoilo audit`: verify a log, read and watch it, be its witness, withdraw what it let in."""
