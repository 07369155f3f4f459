"""`stoilo demo`: the whole path on one machine, every printed claim checked."""
