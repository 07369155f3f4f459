# /// stoilo-case
# idea = "frames from exceptions"
# stopped_by = "language"
# code = "STO-G101"
# ///
class Catch:
    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.frame = getattr(trace, "tb_frame")
        return True


def run(kwargs):
    catch = Catch()
    with catch:
        1 / 0
    return getattr(catch.frame, "f_builtins")["open"](kwargs["canary"]).read()
