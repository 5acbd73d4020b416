"""Data the checks compare with: thresholds, GPU specs, compatibility; each with its loader."""
