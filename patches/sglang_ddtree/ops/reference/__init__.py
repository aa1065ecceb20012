"""Plain-torch tree operations: the implementation on CPU and the oracle for the Triton kernels."""
