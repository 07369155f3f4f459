# expect: refused STO-G010
# level: pure
def run(kwargs):
    return "ESCAPED" if (_stoilo_own_types := {1}) else ""
