"""fedhpc.export_model and load_weights, where this Python has PyTorch."""

import unittest

from python_support import skip_without_torch

skip_without_torch()

from model_cases import FileTest, LayersTest, LoadTest, RefusedTest, WholeModelsTest  # noqa: E402, F401

if __name__ == "__main__":
    unittest.main()
