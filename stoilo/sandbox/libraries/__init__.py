"""What tasks get for parts of described libraries, one file a library or a part of one."""
