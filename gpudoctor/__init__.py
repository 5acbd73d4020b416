"""gpudoctor: audit, fix and re-measure a GPU inference host from the terminal."""

__version__ = "0.1.0"
