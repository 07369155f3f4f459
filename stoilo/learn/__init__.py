"""Distributed training on volunteer tasks."""
