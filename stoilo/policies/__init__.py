"""Levels as data and the gate that checks source against them."""
