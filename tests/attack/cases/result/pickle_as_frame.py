# /// stoilo-case
# idea = "pickles"
# run = "result"
# stopped_by = "result"
# code = "STO-S021"
# ///
import pickle


class Thief:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        import os

        return (os.mkdir, (self.path,))


def run(kwargs):
    return pickle.dumps(Thief(kwargs["mark"]))


def parent(answer):
    return pickle.loads(answer)
