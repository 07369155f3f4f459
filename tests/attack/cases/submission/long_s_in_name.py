# /// stoilo-case
# idea = "names that normalise to others"
# run = "check"
# stopped_by = "gate"
# code = "STO-P020"
# escaped = true
# ///
import po\u017fix


def run(kwargs):
    return posix.read(posix.open(kwargs["canary"], 0), 99).decode()
