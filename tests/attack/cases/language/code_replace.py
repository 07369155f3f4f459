# /// stoilo-case
# idea = "function internals"
# stopped_by = "gate"
# code = "STO-G101"
# ///
def opener(path):
    return len(path)


def run(kwargs):
    opener.__code__ = opener.__code__.replace(co_names=("open",))
    return opener(kwargs["canary"]).read()
