# /// stoilo-case
# idea = "frames from exceptions"
# stopped_by = "gate"
# code = "STO-G101"
# ///
class Catch:
    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.names = trace.tb_frame.f_builtins
        return True


def run(kwargs):
    catch = Catch()
    with catch:
        1 / 0
    return catch.names["open"](kwargs["canary"]).read()
