"""`stoilo release`: the ceremony by which people sign what volunteers trust."""
