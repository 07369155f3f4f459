# /// stoilo-case
# idea = "code that multiplies in the compiler"
# code = "STO-P027"
# stopped_by = "gate"
# goal = "inside"
# ///
def run(kwargs):
    try:
        try:
            try:
                try:
                    try:
                        try:
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
            pass
    finally:
        pass
    return "REACHED"
