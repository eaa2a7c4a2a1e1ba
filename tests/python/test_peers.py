"""The loops that fedhpc is compared with train what it trains: the same losses and models from the same draws."""

import contextlib
import io
import json
import os
import subprocess
import sys
import unittest

import h5py
import numpy as np

from python_support import SOURCE, InFolder, skip_without_torch

skip_without_torch()

sys.path.insert(0, str(SOURCE / "bench/peers"))
import networks  # noqa: E402
import peer_pytorch  # noqa: E402
import peer_vmap  # noqa: E402
import problem_files  # noqa: E402
import problems  # noqa: E402

ROUNDS, TOLERANCE = 4, 1e-5
KEYS = {"data.clients": 6, "train.batch_size": 20, "topology.participation": 0.5}
SMALL = {
    "a": {"samples": 420, "features": 20, "model": "mlp", "cohort": 3,
          "keys": KEYS | {"model.name": "dnn", "model.hidden": 100}},
    "c": {"samples": 300, "features": 12, "model": "logistic", "cohort": 3, "keys": KEYS | {"model.name": "mlr"}},
}


class SameLosses(InFolder):
    def of_fedhpc(self, name):
        """Writes the problem and runs it; returns its losses [rounds] and its last accuracy."""
        fedhpc = os.environ["FEDHPC"]
        arguments = problem_files.make(name, SMALL[name], self.folder / name, fedhpc)
        subprocess.run([fedhpc, "run", *arguments, f"--run.rounds={ROUNDS}", "--run.output=run.h5",
                        "--run.progress=none"], check=True)
        with h5py.File("run.h5") as file:
            return file["rounds/train_loss"][...], file["rounds/global_accuracy"][-1]

    def check(self, peer):
        for name in SMALL:
            with self.subTest(problem=name):
                losses, accuracy = self.of_fedhpc(name)
                report, printed = problems.Report(ROUNDS, 0), io.StringIO()
                with contextlib.redirect_stdout(printed):
                    peer.train(problems.load(self.folder / name), report)
                last = json.loads(printed.getvalue())
                self.assertEqual(last["round"], ROUNDS)
                self.assertLess(losses[-1], losses[0])
                np.testing.assert_allclose(last["losses"], losses, rtol=TOLERANCE)
                self.assertAlmostEqual(last["accuracy"], accuracy, delta=0.002)  # two samples on a boundary

    def test_a_plain_loop_in_pytorch(self):
        self.check(peer_pytorch)

    def test_a_loop_over_steps_of_all_clients(self):
        self.check(peer_vmap)

    def test_another_seed_of_the_batches_is_seen(self):
        losses, _ = self.of_fedhpc("a")
        problem, report = problems.load(self.folder / "a"), problems.Report(ROUNDS, 0)
        problem.seed += 1
        with contextlib.redirect_stdout(io.StringIO()):
            peer_pytorch.train(problem, report)
        self.assertGreater(np.abs(np.array(report.losses) / losses - 1).max(), 10 * TOLERANCE)

    def test_the_network_of_the_images_is_that_of_the_configuration(self):
        shapes = {"conv1.weight": (32, 3, 3, 3), "conv2.weight": (64, 32, 3, 3), "fc1.weight": (128, 64 * 14 * 14),
                  "fc2.weight": (10, 128)}
        shapes |= {name.replace("weight", "bias"): shape[:1] for name, shape in shapes.items()}
        fedhpc, config = os.environ["FEDHPC"], problem_files.PROBLEMS["b"]["config"]
        samples = {"x_train": np.zeros((20, 3, 32, 32), np.uint8), "y_train": np.arange(20) % 10,
                   "x_test": np.zeros((10, 3, 32, 32), np.uint8), "y_test": np.arange(10)}
        with h5py.File("images.h5", "w") as file:
            for name, values in samples.items():
                file[name] = values
        subprocess.run([fedhpc, "run", config, "--data.name=hdf5", "--data.file=images.h5", "--data.clients=2",
                        "--data.standardize=unit", "--topology.participation=1", "--run.rounds=1", "--run.save=init",
                        "--run.output=run.h5", "--run.progress=none"], check=True)
        with h5py.File("run.h5") as file:
            initial = {name: values[...] for name, values in file["model/init/global"].items()}
        self.assertEqual({name: values.shape for name, values in initial.items()}, shapes)
        problem = problems.Problem("b", "cnn", 2, 10, 0.1, 0, None, np.arange(10), None, None, [], initial)
        net = networks.network(problem)
        self.assertEqual(sum(p.numel() for p in net.parameters()), 1626442)


if __name__ == "__main__":
    unittest.main()
