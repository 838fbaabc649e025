"""Many runs from one recipe, on this machine's cores or on a Ray cluster."""
