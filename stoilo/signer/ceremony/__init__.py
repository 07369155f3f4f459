"""The release ceremony: files in, files out, on machines without a network.

folder          what travels on the stick, read with every byte bounded and hashed
base_release    the published release that a ceremony builds on, verified
metadata        one metadata file: read strictly, compared by what was signed
key_holders     whose key is whose, and whether a release's keys add up
proposal        unsigned metadata made of a release and changes
requests        what people ask for, as changes; beginning a ceremony
built_parts     a directory of built parts, as changes; what belongs together
signatures      who must sign, who has; one signature by one key; copies combined
review          what changes, who signed, who is missing, what is wrong
                (checks, content_checks; change_words says it in words)
key_memory      what a key has signed, remembered beside it
boinc_files     BOINC's signatures on launchers and verifiers
publication     a complete ceremony into a release directory
transcript      who did what, when, with which key
"""
