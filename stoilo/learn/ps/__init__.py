"""A parameter server: named values on a hash ring, a vector clock, leases, one algorithm.

The server is trusted and run by the project. Its "workers" are parts of the data, not
machines: a volunteer computes one iteration of one part, whoever that is, and is never
kept waiting; what must wait is not handed out.
"""
