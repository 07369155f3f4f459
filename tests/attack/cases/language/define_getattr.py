# /// stoilo-case
# idea = "special methods that the language relies on"
# stopped_by = "gate"
# code = "STO-G101"
# ///
class A:
    def __getattr__(self, name):
        return getattr(len.__self__, name)


def run(kwargs):
    return A().open(kwargs["canary"]).read()
