# /// stoilo-case
# idea = "change an exception or instance of a library"
# stopped_by = "gate"
# code = "STO-G101"
# goal = "inside"
# ///
def run(kwargs):
    try:
        1 / 0
    except ZeroDivisionError as error:
        error.__traceback__ = None
        return "" if error.__traceback__ else "REACHED"
