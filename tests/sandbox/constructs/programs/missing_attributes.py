import copy


class Proxy:
    def __init__(self, inner):
        self._inner = inner
        self.asked = 0

    def __getattr__(self, name):
        self.asked += 1
        return getattr(self._inner, name)


class Record(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value

    def __delattr__(self, name):
        del self[name]


class Lazy:
    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self.__dict__[name] = len(name)
        return self.__dict__[name]


def run(kwargs):
    proxy, record, lazy = Proxy([3, 1, 2]), Record(x=1), Lazy()
    proxy.sort()
    record.y = record.x + 1
    del record.x
    found = [proxy._inner, proxy.count(3), hasattr(proxy, "nothing"), proxy.asked]
    found += [dict(record), hasattr(record, "x"), getattr(record, "x", 0), dict(copy.copy(record))]
    found += [lazy.abc, vars(lazy), hasattr(lazy, "_x"), vars(copy.deepcopy(lazy)), lazy.__getattr__("ab")]
    try:
        record.gone
    except AttributeError as error:
        found.append(str(error))
    return found


# abuse: STO-G101
class Own:
    def __getattr__(self, name):
        return "REACHED"


def run(kwargs):
    return getattr(Own(), "__array_inter" + "face__")
