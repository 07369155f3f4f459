"""`stoilo flavor`: named dependency sets: shown, built, compared, attested."""
