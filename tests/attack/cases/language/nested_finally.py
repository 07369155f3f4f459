# /// stoilo-case
# idea = "deep nesting"
# stopped_by = "gate"
# code = "STO-P027"
# goal = "inside"
# ///
def run(kwargs):
    try:
        try:
            try:
                try:
                    try:
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
