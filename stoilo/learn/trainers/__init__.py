"""Trainers as researchers use them: a method, a model, data and a backend put together."""
