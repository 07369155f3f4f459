"""`stoilo flavor`: name, freeze and describe dependency sets."""
