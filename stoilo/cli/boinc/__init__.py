"""`stoilo boinc`: volunteers and hosts of our project; stock projects set up and checked."""
