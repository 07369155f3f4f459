# /// stoilo-case
# idea = "exec and eval"
# stopped_by = "gate"
# code = "STO-G020"
# ///
def run(kwargs):
    evaluate = eval
    return evaluate("open(path).read()", {"path": kwargs["canary"]})
