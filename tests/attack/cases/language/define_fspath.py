# /// stoilo-case
# idea = "special methods that libraries trust"
# stopped_by = "gate"
# code = "STO-G010"
# ///
class Path:
    def __init__(self, text):
        self.text = text

    def __fspath__(self):
        return self.text


def run(kwargs):
    return open(Path(kwargs["canary"])).read()
