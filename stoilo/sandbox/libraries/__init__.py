"""What tasks get for members of described libraries, one file a library."""
