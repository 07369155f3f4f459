# /// stoilo-case
# idea = "code that multiplies in the compiler"
# code = "STO-P027"
# stopped_by = "gate"
# goal = "inside"
# ///
from contextlib import nullcontext


def run(kwargs):
    for step in [1]:
        try:
            with nullcontext():
                try:
                    while True:
                        try:
                            try:
                                try:
                                    try:
                                        break
                                    finally:
                                        pass
                                finally:
                                    pass
                            finally:
                                pass
                        finally:
                            pass
                finally:
                    pass
        finally:
            return "REACHED"
