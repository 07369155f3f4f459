# /// stoilo-case
# idea = "exec and eval"
# stopped_by = "gate"
# code = "STO-G020"
# ///
class Run:
    __getitem__ = eval


def run(kwargs):
    reader = Run()["open"]
    return reader(kwargs["canary"]).read()
