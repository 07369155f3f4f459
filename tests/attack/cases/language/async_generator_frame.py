# /// stoilo-case
# idea = "async"
# stopped_by = "gate"
# code = "STO-G014"
# source = "RestrictedPython 8.5"
# ///
def run(kwargs):
    async def numbers():
        yield 1

    frame = numbers().ag_frame
    return frame.f_builtins["open"](kwargs["canary"]).read()
