# /// stoilo-case
# idea = "copy into a library object"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import copy
import json

targets = []


class K:
    def __new__(cls):
        return targets[0] if targets else object.__new__(cls)


def run(kwargs):
    k = K()
    k.loads = "REACHED"
    targets.append(json)
    copy.copy(k)
    return json.loads
