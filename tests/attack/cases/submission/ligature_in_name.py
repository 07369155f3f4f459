# /// stoilo-case
# idea = "names that normalise to others"
# run = "check"
# stopped_by = "gate"
# code = "STO-P020"
# escaped = true
# ///
def \ufb01nd(path):
    return open(path).read()


def run(kwargs):
    return find(kwargs["canary"])
