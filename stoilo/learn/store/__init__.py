"""The parameter store: named values and vectors in shards, in this process or in their own.

The server is trusted and run by the project; a shard may be a process of its own, which may
be killed. There is one kind of shard, one client, one program (`process`) and one protocol.
Values are cells on a hash ring, updated by functions, with a vector clock for those who share
them; vectors are ranges that a batch optimiser calculates with.
"""
