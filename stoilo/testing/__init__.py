"""Public fakes and generators: for our tests, and for those of people who build on stoilo."""
