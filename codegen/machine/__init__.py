"""What is known of the machines that kernels are built for. The only place with a chip's numbers."""
