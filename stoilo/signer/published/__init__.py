"""Checking a published release as anybody can: nothing is believed but a root.

places     where the files come from: a directory or a web server
history    every version of every role, from the first root on, in its one spelling
contents   every target's bytes, archives and trees inside
evidence   builders' attestations, BOINC's signatures, the log's proof
verify     all of it, in order, and nothing left over
"""
