# /// stoilo-case
# idea = "missing builtins"
# stopped_by = "gate"
# code = "STO-G010"
# ///
def run(kwargs):
    system = __import__("os")
    return system.read(system.open(kwargs["canary"], 0), 99).decode()
