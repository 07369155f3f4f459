# /// stoilo-case
# idea = "module through an allowed module"
# stopped_by = "gate"
# code = "STO-P040"
# source = "CVE-2025-5120"
# ///
from random import _os


def run(kwargs):
    return _os.read(_os.open(kwargs["canary"], 0), 99).decode()
