"""Panel: kernel_version."""
