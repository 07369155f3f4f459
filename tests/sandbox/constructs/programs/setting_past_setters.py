from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0

    def __post_init__(self):
        object.__setattr__(self, "y", self.x * 2)
        super().__setattr__("_norm", abs(self.x))


class Audited:
    def __init__(self):
        self.log = []
        self.a = 1

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)
        self.log.append(f"{name}={value}" if name != "log" else "")

    def __delattr__(self, name):
        self.log.append(f"-{name}")
        super().__delattr__(name)


class Sealed(Audited):
    def __setattr__(self, name, value):
        if name.startswith("no"):
            raise AttributeError(f"{name} is sealed")
        super().__setattr__(name, value)


def run(kwargs):
    point, audited, sealed = Point(3), Audited(), Sealed()
    setattr(audited, "b", 2)
    audited.b += 1
    del audited.a
    errors = []
    for change in (lambda: setattr(point, "x", 1), lambda: setattr(sealed, "nope", 1)):
        try:
            change()
        except AttributeError as error:
            errors.append(str(error))
    object.__delattr__(sealed, "a")
    read = object.__getattribute__(point, "_norm")
    return [point, point._norm, read, audited.log, vars(sealed), errors, point.__getattribute__("y")][1:]


# abuse: STO-G102
class Own:
    word = ""


class Other:
    word = "REACHED"


def run(kwargs):
    own = Own()
    object.__setattr__(own, "__cla" + "ss__", Other)
    return own.word
