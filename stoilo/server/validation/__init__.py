"""From result files to an outcome: what they say, validators in jails, which results agree."""
