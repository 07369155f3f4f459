"""`stoilo audit fsck`: find and locate every fault of a log, changing nothing."""
