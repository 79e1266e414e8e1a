"""Write the results pages."""
