# /// stoilo-case
# idea = "names that look alike"
# run = "check"
# stopped_by = "gate"
# code = "STO-P020"
# escaped = true
# ///
def \u0441\u043e\u0440\u0443(path):
    return open(path).read()


def run(kwargs):
    return \u0441\u043e\u0440\u0443(kwargs["canary"])
