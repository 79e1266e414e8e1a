"""Drop-in replacements for the CRF layers of other libraries: change the import, keep the code."""
