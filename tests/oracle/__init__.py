"""Independent yardsticks: nothing here imports the project's kernels or model."""
