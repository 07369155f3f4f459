# /// stoilo-case
# idea = "async"
# stopped_by = "gate"
# code = "STO-G014"
# ///
def run(kwargs):
    async def read():
        return routine.cr_frame.f_builtins["open"](kwargs["canary"]).read()

    routine = read()
    try:
        routine.send(None)
    except StopIteration as end:
        return end.value
