# expect: refused STO-G014
# level: pure
def run(kwargs):
    try:
        raise ExceptionGroup("x", [ValueError()])
    except* ValueError:
        pass
    return "ESCAPED"
