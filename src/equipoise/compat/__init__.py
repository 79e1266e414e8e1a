"""Other libraries' interfaces on the exact inference of this one: change the import, keep the code."""
