"""A client's side of a BOINC slot: it lays the slot out, starts the launcher, reads its end."""
