# /// stoilo-case
# idea = "interpreters and parsers"
# ///
"""A small Scheme: tokenizer, parser, environments, tail calls by trampoline."""
import math
import operator as op
import re
from collections import ChainMap
from functools import reduce


class Symbol(str):
    __slots__ = ()


class SchemeError(Exception):
    pass


def parse(text):
    tokens = re.findall(r'[()\']|"[^"]*"|[^\s()\']+', text)

    def read():
        if not tokens:
            raise SchemeError("unexpected end")
        t = tokens.pop(0)
        match t:
            case "(":
                out = []
                while tokens and tokens[0] != ")":
                    out.append(read())
                if not tokens:
                    raise SchemeError("missing )")
                tokens.pop(0)
                return out
            case ")":
                raise SchemeError("unexpected )")
            case "'":
                return [Symbol("quote"), read()]
            case s if s.startswith('"'):
                return s[1:-1]
            case _:
                for kind in (int, float):
                    try:
                        return kind(t)
                    except ValueError:
                        pass
                return Symbol(t)

    forms = []
    while tokens:
        forms.append(read())
    return forms


class Lambda:
    def __init__(self, params, body, env):
        self.params, self.body, self.env = params, body, env


GLOBALS = {
    "+": lambda *a: sum(a), "*": lambda *a: math.prod(a), "-": lambda a, *b: -a if not b else reduce(op.sub, b, a),
    "<": op.lt, "=": op.eq, "car": lambda l: l[0], "cdr": lambda l: l[1:], "cons": lambda a, b: [a] + b,
    "null?": lambda l: not l, "list": lambda *a: list(a), "pi": math.pi, "sqrt": math.sqrt,
}


def evaluate(x, env):
    while True:
        match x:
            case Symbol():
                try:
                    return env[x]
                except KeyError:
                    raise SchemeError(f"unbound: {x}") from None
            case int() | float() | str():
                return x
            case [Symbol() as head, *rest] if head in SPECIAL:
                done, x, env = SPECIAL[head](rest, env)
                if done:
                    return x
            case [head, *args]:
                f = evaluate(head, env)
                values = [evaluate(a, env) for a in args]
                if isinstance(f, Lambda):
                    x, env = f.body, f.env.new_child(dict(zip(f.params, values)))
                else:
                    return f(*values)
            case []:
                raise SchemeError("empty call")


def special_if(args, env):
    test, then, other = args
    return False, then if evaluate(test, env) is not False else other, env


def special_define(args, env):
    name, value = args
    if isinstance(name, list):
        name, value = name[0], [Symbol("lambda"), name[1:], value]
    env[name] = evaluate(value, env)
    return True, None, env


def special_let(args, env):
    binds, body = args
    return False, body, env.new_child({k: evaluate(v, env) for k, v in binds})


SPECIAL = {
    "if": special_if,
    "define": special_define,
    "let": special_let,
    "quote": lambda args, env: (True, args[0], env),
    "lambda": lambda args, env: (True, Lambda(args[0], args[1], env), env),
}


def run(kwargs):
    env = ChainMap(dict(GLOBALS))
    program = """
    (define (fact n) (if (< n 2) 1 (* n (fact (- n 1)))))
    (define (loop n acc) (if (= n 0) acc (loop (- n 1) (+ acc n))))
    (define (map f l) (if (null? l) '() (cons (f (car l)) (map f (cdr l)))))
    (let ((k 3)) (map (lambda (x) (* x k)) (list 1 2 3)))
    (loop 5000 0)
    (fact 20)
    (sqrt 2)
    """
    out = [evaluate(form, env) for form in parse(program)]
    for bad in ("(", "(foo)", ")"):
        try:
            [evaluate(f, env) for f in parse(bad)]
        except SchemeError as e:
            print(type(e).__name__, e)
    return [v for v in out if v is not None]
