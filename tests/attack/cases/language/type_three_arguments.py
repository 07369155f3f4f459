# /// stoilo-case
# idea = "type with three arguments"
# stopped_by = "gate"
# code = "STO-G105"
# ///
def run(kwargs):
    made = type("X", (), {"__getattr__": lambda self, name: getattr(len.__self__, name)})
    return made().open(kwargs["canary"]).read()
