# /// stoilo-case
# idea = "own exceptions"
# run = "task"
# level = "pure"
# ///
class SolverError(Exception):
    def __init__(self, message, step):
        super().__init__(message)
        self.step = step


class Diverged(SolverError):
    pass


def newton(f, df, x, limit):
    for step in range(limit):
        if abs(df(x)) < 1e-12:
            raise Diverged(f"flat at {x}", step) from ValueError("inner")
        x -= f(x) / df(x)
    return x


def run(kwargs):
    results = []
    for start in (1.0, 0.0):
        try:
            results.append(newton(lambda x: x * x - 2, lambda x: 2 * x, start, 30))
        except Diverged as error:
            results.append((str(error), error.step, error.args))
        except SolverError:
            results.append("never")
        else:
            results.append("fine")
        finally:
            results.append("done")
    try:
        int("x")
    except (TypeError, ValueError) as error:
        results.append(type(error).__name__)
    return results
