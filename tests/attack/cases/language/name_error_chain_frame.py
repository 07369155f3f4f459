# /// stoilo-case
# idea = "frames from exceptions"
# stopped_by = "language"
# code = "STO-G101"
# ///
def run(kwargs):
    try:
        try:
            nothing
        except NameError:
            1 / 0
    except ZeroDivisionError as error:
        trace = getattr(error.__context__, "__trace" + "back__")
        frame = getattr(trace, "tb_frame")
        return getattr(frame, "f_builtins")["open"](kwargs["canary"]).read()
