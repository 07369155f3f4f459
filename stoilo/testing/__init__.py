"""Public fakes and generators: for our tests, and for those of people who build on stoilo.

Import the module that has what you need; `stoilo.testing.service` is the fake server for
programs that use the client.
"""
