# expect: value
# level: pure
def run(kwargs):
    try:
        return "ESCAPED" if getattr(run, "__globals__") else ""
    except BaseException:
        return "swallowed"
