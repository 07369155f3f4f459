# /// stoilo-case
# idea = "super objects"
# stopped_by = "gate"
# code = "STO-G011"
# ///
class A:
    def read(self, path):
        names = super().__getattribute__("read").__func__.__builtins__
        return names["open"](path).read()


def run(kwargs):
    return A().read(kwargs["canary"])
