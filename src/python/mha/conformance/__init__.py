"""The conformance suite: runs kernels on its test cases and reports."""
