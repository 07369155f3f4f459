"""Tasks whose level needs a person: the queue, the reviews handed in, the reviewer's view."""
