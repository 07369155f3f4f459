"""`stoilo learn`: what training needs beside a project."""
