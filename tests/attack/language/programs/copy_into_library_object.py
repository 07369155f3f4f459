# expect: refused STO-G102
# level: pure
import copy
import json

targets = []


class K:
    def __new__(cls):
        return targets[0] if targets else object.__new__(cls)


def run(kwargs):
    k = K()
    k.loads = "ESCAPED"
    targets.append(json)
    copy.copy(k)
    return json.loads
