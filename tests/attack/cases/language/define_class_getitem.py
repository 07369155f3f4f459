# /// stoilo-case
# idea = "special methods that libraries trust"
# stopped_by = "gate"
# code = "STO-G020"
# ///
class Reader:
    def __class_getitem__(cls, path):
        return open(path).read()


def run(kwargs):
    return Reader[kwargs["canary"]]
