class TooSmall(ValueError):
    def __init__(self, n, limit=3):
        super().__init__(f"{n} < {limit}")
        self.n = n


def check(n):
    if n < 3:
        raise TooSmall(n)
    return n


def run(kwargs):
    log = []
    for n in (5, 1):
        try:
            log.append(check(n))
        except (KeyError, TooSmall) as error:
            log += [error.n, str(error), error.args, isinstance(error, ValueError), repr(error)]
        else:
            log.append("fine")
        finally:
            log.append("done")
    try:
        try:
            1 / 0
        except ZeroDivisionError as error:
            raise RuntimeError("outer") from error
    except RuntimeError as error:
        log.append([str(error), type(error.__cause__).__name__])
    try:
        raise
    except RuntimeError as error:
        log.append(str(error))
    return log


# abuse: STO-G101
def run(kwargs):
    try:
        1 / 0
    except ZeroDivisionError as error:
        return "REACHED" if error.__traceback__.tb_frame.f_globals else "no"
