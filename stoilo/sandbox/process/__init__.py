"""Supervisor, zygote and jailed child: how one run starts, is watched and ends."""
