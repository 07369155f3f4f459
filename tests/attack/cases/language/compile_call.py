# /// stoilo-case
# idea = "exec and eval"
# stopped_by = "gate"
# code = "STO-G020"
# ///
def run(kwargs):
    code = compile("open(path).read()", "", "eval")
    return eval(code, {"path": kwargs["canary"]})
