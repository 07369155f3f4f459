# /// stoilo-case
# idea = "Unicode error outside its text"
# wider = true
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# control = "host"
# ///
def run(kwargs):
    error = UnicodeDecodeError("utf-8", b"abc", -1, 0, "why")
    return "REACHED" if "decode byte" in str(error) else ""
