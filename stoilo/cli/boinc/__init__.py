"""`stoilo boinc`: volunteers and hosts of our own project; a stock project set up and checked."""
