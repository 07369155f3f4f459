# /// stoilo-case
# idea = "names with a meaning in the transformer"
# stopped_by = "gate"
# code = "STO-G010"
# ///
def run(kwargs):
    super = lambda: run
    return super().__globals__["__builtins__"]["open"](kwargs["canary"]).read()
