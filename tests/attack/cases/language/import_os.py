# /// stoilo-case
# idea = "import of a forbidden module"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import os


def run(kwargs):
    return os.read(os.open(kwargs["canary"], os.O_RDONLY), 99).decode()
