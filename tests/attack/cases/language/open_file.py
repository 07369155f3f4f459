# /// stoilo-case
# idea = "missing builtins"
# stopped_by = "gate"
# code = "STO-G020"
# ///
def run(kwargs):
    with open(kwargs["canary"]) as file:
        return file.read()
