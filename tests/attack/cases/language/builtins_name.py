# /// stoilo-case
# idea = "reserved module variables"
# stopped_by = "gate"
# code = "STO-G010"
# ///
def run(kwargs):
    return __builtins__["open"](kwargs["canary"]).read()
