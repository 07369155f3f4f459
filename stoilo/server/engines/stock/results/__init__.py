"""What came back: files kept, verdicts, outcomes and their delivery, what is cleaned up."""
