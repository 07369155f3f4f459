# expect: refused STO-G101
# level: pure
def run(kwargs):
    if __name__ == "attack":
        return "ESCAPED"
    try:
        return getattr(run, "__glob" + "als__")
    except Exception as error:
        error.args = ("STO-S031", "forged", "")
        error.code = "STO-S031"
        raise
