# /// stoilo-case
# idea = "names that look alike"
# run = "check"
# stopped_by = "gate"
# code = "STO-P020"
# escaped = true
# ///
def l\u0435n(path):
    return open(path).read()


def run(kwargs):
    return l\u0435n(kwargs["canary"])
