"""For tests of programs that build on stoilo.

`service` is a fake server for programs that use the client; `deployment`, `witness` and
`cheat` are a real `stoilo up`, a real witness and a volunteer that lies, as processes.
"""
