"""What tasks get for described libraries beyond their own names, one file a library."""
