"""The release ceremony: files in, files out, on machines without a network.

folder       what travels on the stick, read with every byte bounded and hashed
current      the published release that a ceremony builds on, verified
changes      what somebody asks for: targets, keys, lists, renewals
proposal     unsigned metadata made of a release and changes (pure)
review       what changes, who signed, who is missing, what is wrong (pure)
signing      one signature, by one key, on one machine
combining    the signatures of several copies of one ceremony
publication  a complete ceremony into a release directory
expiry       what expires when (pure)
transcript   who did what, when, with which key
"""
