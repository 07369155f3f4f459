# /// stoilo-case
# idea = "metaclasses"
# stopped_by = "gate"
# code = "STO-G105"
# ///
class Meta(type):
    def __getattr__(cls, name):
        return getattr(len.__self__, name)


class A(metaclass=Meta):
    pass


def run(kwargs):
    return A.open(kwargs["canary"]).read()
