"""The driver: a method's orders become jobs, checked answers come back, all of it is saved."""
