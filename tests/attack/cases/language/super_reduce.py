# /// stoilo-case
# idea = "super objects"
# stopped_by = "gate"
# code = "STO-G101"
# ///
class A:
    def read(self, path):
        rebuild = super().__reduce__()[0]
        return rebuild.__builtins__["open"](path).read()


def run(kwargs):
    return A().read(kwargs["canary"])
