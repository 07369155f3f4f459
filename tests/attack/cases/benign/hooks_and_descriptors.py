# /// stoilo-case
# idea = "classes with hooks"
# ///
from abc import ABCMeta, abstractmethod
import abc, json, copy
from dataclasses import dataclass
__all__ = ["run"]
__version__ = "1.0"

class Conf:
    def __init__(self, **kw):
        self.__dict__.update(kw)
        self._p = 1
    def __repr__(self):
        return f"Conf({self.__dict__})"

class Base(metaclass=ABCMeta):
    @abstractmethod
    def area(self): ...
    @property
    @abc.abstractmethod
    def name(self): ...

class Sq(Base):
    def area(self): return 4
    @property
    def name(self): return "sq"

@dataclass(frozen=True)
class P:
    x: int
    def __post_init__(self):
        object.__setattr__(self, "y", self.x * 2)

class Reg:
    known = {}
    def __init_subclass__(cls, tag=None, **kw):
        super().__init_subclass__(**kw)
        cls.known[tag] = cls.__name__
class A(Reg, tag="a"): pass
class B(Reg, tag="b"): pass

class Proxy:
    def __init__(self, inner):
        self._inner = inner
    def __getattr__(self, name):
        return getattr(self._inner, name)

class Attr(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name)
    def __setattr__(self, name, value):
        self[name] = value
    def __delattr__(self, name):
        del self[name]

class Typed:
    def __set_name__(self, owner, name):
        self.name = name
    def __get__(self, obj, owner=None):
        if obj is None: return self
        return obj.__dict__[self.name]
    def __set__(self, obj, value):
        if not isinstance(value, int): raise TypeError(self.name)
        obj.__dict__[self.name] = value
class T:
    n = Typed()
    def __init__(self, n): self.n = n

class Audit:
    def __setattr__(self, name, value):
        if name.startswith("no"): raise AttributeError(name)
        super().__setattr__(name, value)

class G:
    def __class_getitem__(cls, item):
        return (cls.__name__, item)

def star():
    got = []
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), ExceptionGroup("h", [ValueError(3)])])
    except* ValueError as e:
        got.append([len(e.exceptions)])
    except* TypeError as e:
        got.append(repr(e))
    try:
        raise ValueError(5)
    except* ValueError as e:
        got.append(repr(e))
    return got

def run(kw):
    c = Conf(a=1, b=[2])
    d = vars(c)
    d["z"] = 5
    c.w = 6
    out = [repr(c), json.dumps(vars(c)), dict(c.__dict__), {**vars(c)}, sorted(d), d == {"a":1,"b":[2],"_p":1,"z":5,"w":6}, c.z, type(d).__name__, type(d) is dict, isinstance(d, dict)]
    out.append(copy.deepcopy(d)); out.append(copy.copy(d)); out.append(list(d.items()))
    out.append([len(d), "a" in d, d.get("q", 3), d.pop("z"), hasattr(c, "z")])
    try: Base()
    except TypeError as e: out.append(str(e))
    out.append([Sq().area(), Sq().name, isinstance(Sq(), Base), isinstance(Base, ABCMeta)])
    out.append([P(3).y, P(3) == P(3)])
    try: P(3).x = 1
    except AttributeError as e: out.append(str(e))
    out.append(Reg.known)
    pr = Proxy([3,1,2]); pr.sort(); out.append([pr._inner, pr.count(3), hasattr(pr, "nope"), len(pr._inner)])
    a = Attr(x=1); a.y = 2; del a.x; out.append([dict(a), a.y, hasattr(a, "x"), dict(copy.copy(a))])
    t = T(5); out.append([t.n, T.n.name])
    try: t.n = "s"
    except TypeError as e: out.append(str(e))
    u = Audit(); u.ok = 1; out.append(u.ok)
    try: u.nope = 1
    except AttributeError as e: out.append(str(e))
    setattr(u, "k", 2); out.append(u.k)
    out.append(G[int, 3][0])
    out.append(star())
    out.append([__version__, __all__])
    out.append(vars(c))
    return out
