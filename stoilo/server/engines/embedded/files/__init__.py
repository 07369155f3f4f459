"""Files for hosts: inputs, programs, today's release, and the mirrors of them."""
