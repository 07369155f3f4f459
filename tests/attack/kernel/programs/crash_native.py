# expect: user_error language *
# preload: ctypes
# control: none
import ctypes

ctypes.string_at(1)
