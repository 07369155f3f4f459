# /// stoilo-case
# idea = "trusted names of a helper"
# wider = true
# stopped_by = "language"
# code = "STO-G101"
# ///
from json import dumps
from operator import methodcaller


class Names:
    _name = property(lambda self: "__getattribute__")
    _args = property(lambda self: ("__globals__",))
    _keywords = property(lambda self: {})

    def __init__(self, *values):
        pass


try:

    class C(Names, methodcaller):
        pass

except TypeError:
    C = methodcaller


def run(kwargs):
    found = C("__getattribute__", "__globals__")(dumps)
    return found["__builtins__"]["open"](kwargs["canary"]).read()
