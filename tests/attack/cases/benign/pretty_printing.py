# /// stoilo-case
# idea = "pretty printing"
# run = "task"
# level = "pure"
# ///
import pprint
import sys
import time
import warnings


def run(kwargs):
    pprint.pprint({"a": list(range(3)), "b": {"c": 1}}, width=20)
    print("to stdout", end="\n\n", file=sys.stdout, flush=True)
    print(1, "two", [3], sep="-")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("not seen")
    moment = time.gmtime(86400)
    return [
        pprint.pformat([1] * 3),
        time.strftime("%Y-%m-%d", moment),
        sys.maxsize > 2**31,
        time.mktime(moment) >= 0,
    ]
