# /// stoilo-case
# idea = "pickles"
# run = "result"
# stopped_by = "result"
# code = "STO-S021"
# ///
import pickle


def run(kwargs):
    return b"cposix\nmkdir\n(V" + kwargs["mark"].encode() + b"\ntR."


def parent(answer):
    return pickle.loads(answer)
