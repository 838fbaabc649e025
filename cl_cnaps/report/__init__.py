"""What is made of records: labels, tables, plots, pages."""
