# /// stoilo-case
# idea = "big integer loop"
# run = "probe"
# level = "pure"
# stopped_by = "limits"
# goal = "inside"
# limits = { wall_s = 1 }
# ///
# One C call that no Python-level timeout can interrupt.
len(range(3**800000 % 7, 9)) and len(str(1)) and 3 ** (1 << 23) % 10
print("REACHED")
