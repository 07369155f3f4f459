# /// stoilo-case
# idea = "output flood"
# run = "probe"
# stopped_by = "limits"
# limit = "output_bytes"
# goal = "inside"
# limits = { output_bytes = 8192 }
# ///
for _ in range(100):
    print("x" * 1000)
print("REACHED")
