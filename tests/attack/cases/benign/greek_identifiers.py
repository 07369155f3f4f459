# /// stoilo-case
# idea = "greek identifiers"
# run = "task"
# level = "pure"
# ///
import math

π = math.pi


def площадь(радиус):
    return π * радиус**2


def run(kwargs):
    α, β = 0.5, 2.0
    Δ = β - α
    return [Δ, площадь(2.0), {"λ": α}]
