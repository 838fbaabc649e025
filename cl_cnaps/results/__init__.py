"""Run records and what is made from them: tables, plots."""
