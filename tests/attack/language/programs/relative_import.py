# expect: refused STO-G017
# level: pure
def run(kwargs):
    try:
        from . import x
    except ImportError:
        pass
    return "ESCAPED"
