"""What is known of hosts: trust, bans, quotas, conduct, what they want to be sent."""
