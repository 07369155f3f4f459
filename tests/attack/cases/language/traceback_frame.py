# /// stoilo-case
# idea = "frames from exceptions"
# stopped_by = "gate"
# code = "STO-G101"
# ///
def run(kwargs):
    try:
        1 / 0
    except ZeroDivisionError as error:
        names = error.__traceback__.tb_frame.f_back.f_builtins
        return names["open"](kwargs["canary"]).read()
