# /// stoilo-case
# idea = "names that look alike"
# run = "check"
# stopped_by = "gate"
# code = "STO-P020"
# escaped = true
# ///
def c\u03bfpy(path):
    return open(path).read()


def run(kwargs):
    return c\u03bfpy(kwargs["canary"])
