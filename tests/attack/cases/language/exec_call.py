# /// stoilo-case
# idea = "exec and eval"
# stopped_by = "gate"
# code = "STO-G020"
# ///
def run(kwargs):
    space = {"path": kwargs["canary"]}
    exec("found = open(path).read()", space)
    return space["found"]
