class Diverged(Exception):
    pass


class Several(ExceptionGroup):
    """A group that keeps the interpreter's own ways."""


def fail(kind):
    inner = Several("inner", [ValueError(3), Diverged("far")])
    raise {"group": ExceptionGroup("all", [ValueError(1), TypeError(2), inner]), "one": ValueError(5)}[kind]


def handle(kind, log):
    try:
        fail(kind)
    except* (ValueError, KeyError) as found:
        log.append([type(found).__name__, len(found.exceptions)])
    except* TypeError:
        log.append("type")
        raise RuntimeError("again") from None
    else:
        log.append("none")
    finally:
        log.append("last")


def run(kwargs):
    log = []
    for kind in ("group", "one"):
        try:
            handle(kind, log)
        except ExceptionGroup as left:
            log.append([repr(error) for error in left.exceptions])
    return log


# abuse: STO-G105
class Group(ExceptionGroup):
    def split(self, condition):
        return (ExceptionGroup("REACHED", [ValueError()]), None)


def run(kwargs):
    word = ""
    try:
        raise Group("x", [ValueError()])
    except* ValueError as found:
        word = found.message
    return word
