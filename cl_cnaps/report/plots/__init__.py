"""Charts, drawn from records with matplotlib."""
