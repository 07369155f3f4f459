# /// stoilo-case
# idea = "Unicode error outside its text"
# wider = true
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# control = "host"
# ///
class Catch:
    def __exit__(self, kind, error, trace):
        self.kind = kind
        return True

    def __enter__(self):
        return self


def run(kwargs):
    with Catch() as caught:
        b"\xff".decode()
    error = caught.kind("utf-8", b"abc", -1, 0, "why")
    return "REACHED" if "decode byte" in str(error) else ""
