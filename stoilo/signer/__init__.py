"""Keys and what they sign.

process      the one process that holds the server's keys, and asking it
ceremony     releases proposed, reviewed and signed by people, offline
published    checking a published release as anybody can
development  a project whose keys all lie on one machine

Directly here is what several of these need: key files, roles and their limits, the
release directory, part records and the builders' attestations.
"""
