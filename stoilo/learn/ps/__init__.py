"""A parameter server: named values on a hash ring, a vector clock, leases, one algorithm.

The server is trusted and run by the project; a shard may be a process of its own, which may
be killed. For volunteers, its "workers" are parts of the data, not machines: a volunteer
computes one iteration of one part, whoever that is, and is never kept waiting; what must
wait is not handed out. Workers of the project's own (`worker`) wait where they read.
"""
