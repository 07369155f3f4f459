"""What all of learning speaks of: arrays, data parts, models, orders and replies, states."""
