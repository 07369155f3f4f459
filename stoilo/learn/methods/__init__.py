"""Training algorithms as pure state machines: see `stoilo.learn.work.Method`."""
