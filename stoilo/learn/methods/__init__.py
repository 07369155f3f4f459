"""Training algorithms as pure state machines: see `stoilo.learn.core.orders.Method`."""
