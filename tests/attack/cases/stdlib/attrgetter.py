# /// stoilo-case
# idea = "operator getters"
# stopped_by = "language"
# code = "STO-G101"
# source = "CVE-2025-5120"
# ///
from operator import attrgetter


def run(kwargs):
    reader = attrgetter("__self__.open")(len)
    return reader(kwargs["canary"]).read()
