# expect: refused STO-G104
# level: pure
def run(kwargs):
    t = type
    return "ESCAPED" if t("X", (), {"__reduce__": 1}) else ""
