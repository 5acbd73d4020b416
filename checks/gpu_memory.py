"""Panel: gpu_memory."""
