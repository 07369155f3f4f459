# /// stoilo-case
# idea = "fields of a Unicode error changed"
# wider = true
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# control = "host"
# ///
def run(kwargs):
    error = UnicodeDecodeError("utf-8", b"abc", 0, 0, "why")
    for error.start in (-1,):
        pass
    return "REACHED" if "decode byte" in str(error) else ""
