# /// stoilo-case
# idea = "getattr with a built name"
# stopped_by = "language"
# code = "STO-G200"
# ///
class Name(str):
    def startswith(self, *prefixes):
        return False


def run(kwargs):
    names = getattr(run, Name("__builtins__"))
    return names["open"](kwargs["canary"]).read()
