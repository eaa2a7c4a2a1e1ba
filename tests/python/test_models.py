"""fedhpc.export_model and load_weights, where this Python has PyTorch."""

import importlib.util
import unittest

if importlib.util.find_spec("torch") and importlib.util.find_spec("torch.nn"):
    from model_cases import FileTest, LayersTest, LoadTest, RefusedTest, WholeModelsTest  # noqa: F401
else:
    class ModelsTest(unittest.TestCase):
        def test_models(self):
            self.skipTest("this Python has no torch")


if __name__ == "__main__":
    unittest.main()
