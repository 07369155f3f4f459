# expect: refused STO-G011
# level: pure
def run(kwargs):
    try:
        1 / 0
    except ZeroDivisionError as error:
        return "ESCAPED" if error.__traceback__.tb_frame else ""
