# expect: refused STO-G101
# level: pure
def run(kwargs):
    return (
        "ESCAPED"
        if getattr((), "__ba" + "se__", None) or getattr(int, "__ba" + "se__")
        else ""
    )
