# expect: refused STO-G003
# level: pure
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
        return "ESCAPED"
