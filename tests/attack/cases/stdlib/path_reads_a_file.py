# /// stoilo-case
# idea = "names of files"
# stopped_by = "gate"
# code = "STO-P040"
# ///
from pathlib import Path


def run(kwargs):
    return Path(kwargs["canary"]).read_text()
