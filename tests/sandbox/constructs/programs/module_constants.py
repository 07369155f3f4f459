__all__ = ["run"]
__version__ = "1.2"
__author__ = __copyright__ = "somebody"


def describe():
    return f"{__author__} {__version__}"


def run(kwargs):
    return [describe(), __all__]


# abuse: STO-G010
__builtins__ = {"word": "REACHED"}


def run(kwargs):
    return __builtins__["word"]
