# expect: refused STO-G103
# level: pure
def run(kwargs):
    return "ESCAPED" if "{f.__globals__}".format_map({"f": run}) else ""
