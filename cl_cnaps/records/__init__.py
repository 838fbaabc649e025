"""Records of finished experiments: written whole, read as a table."""
