# /// stoilo-case
# idea = "code instead of data"
# run = "result"
# stopped_by = "result"
# code = "STO-S021"
# ///
def run(kwargs):
    return ("__import__('os').mkdir(" + repr(kwargs["mark"]) + ")").encode()


def parent(answer):
    return eval(answer)
