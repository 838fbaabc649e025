"""Embed once: features that several tasks or runs share."""
