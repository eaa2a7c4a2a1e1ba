"""Callbacks of a run: what TensorBoard, MLflow and Weights & Biases find, also after an interruption."""

import glob
import importlib.machinery
import importlib.util
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import types
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import fedhpc  # noqa: E402
from fedhpc.callbacks import MLflow, Several, TensorBoard, WeightsAndBiases, figures, flat  # noqa: E402
from fedhpc.tools.event_file import crc32c, masked  # noqa: E402

CONFIG = {"run.rounds": 3, "train": {"lr": 0.1, "batch": {"size": 20}}, "algorithm.name": "fedavg"}
FLAT = {"run.rounds": 3, "train.lr": 0.1, "train.batch.size": 20, "algorithm.name": "fedavg"}
RECORDS = [{"round": 1, "train_loss": 0.5}, {"round": 2, "train_loss": 0.25, "global_accuracy": 0.75},
           {"round": 5, "train_loss": float("nan"), "note": "text", "clients": [1, 2]},
           {"round": 6, "train_loss": float("inf")}]


def has(library):
    return unittest.skipUnless(importlib.util.find_spec(library), f"{library} is not installed")


def run(callback, records=RECORDS, status="complete"):
    """What fedhpc.run does with a callback."""
    callback.begin(CONFIG)
    for record in records:
        callback(record)
    callback.end(status)


def messages(path):
    """The messages of an event file; every checksum is looked at."""
    data, place, found = Path(path).read_bytes(), 0, []
    while place < len(data):
        length, of_length = data[place:place + 8], data[place + 8:place + 12]
        size = struct.unpack("<Q", length)[0]
        message = data[place + 12:place + 12 + size]
        of_message = data[place + 12 + size:place + 16 + size]
        assert struct.unpack("<I", of_length)[0] == masked(crc32c(length)), place
        assert struct.unpack("<I", of_message)[0] == masked(crc32c(message)), place
        found.append(message)
        place += 16 + size
    return found


def stored(data, block=32768, header=7):
    """The records of a file of Weights & Biases: a log of LevelDB, behind a header of as many bytes as a piece has."""
    place, record = header, b""
    while place + header <= len(data):
        left = block - place % block
        size, kind = struct.unpack("<HB", data[place + 4:place + header])
        if left < header or kind == 0:  # filled up with zeros
            place += left
            continue
        record += data[place + header:place + header + size]
        place += header + size
        if kind in (1, 4):  # a whole record, or the last piece of one
            yield record
            record = b""


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def killed(self, make, wait=""):
        """Kills a process after two rounds with the callback that `make` says, and after the code `wait`."""
        script = (f"import sys, time; sys.path.insert(0, {str(ROOT / 'python')!r})\n"
                  f"import fedhpc.callbacks as c; callback = {make}\n"
                  f"callback.begin({CONFIG!r})\n"
                  "for t in (1, 2): callback({'round': t, 'train_loss': 1 / t})\n"
                  f"{wait}"
                  "open('written', 'w').close(); time.sleep(600)\n")
        with open(self.folder / "words", "w") as words:
            process = subprocess.Popen([sys.executable, "-c", script], cwd=self.folder, stdout=words, stderr=words)
            for _ in range(600):
                if (self.folder / "written").exists() or process.poll() is not None:
                    break
                time.sleep(0.1)
            process.send_signal(signal.SIGKILL)
            self.assertEqual(process.wait(), -signal.SIGKILL, (self.folder / "words").read_text())


class Records(unittest.TestCase):
    def test_flat(self):
        self.assertEqual(flat(CONFIG), FLAT)
        self.assertEqual(flat(None), {})

    def test_figures(self):
        self.assertEqual([figures(one) for one in RECORDS],
                         [(1, {"train_loss": 0.5}), (2, {"train_loss": 0.25, "global_accuracy": 0.75}), (5, {}),
                          (6, {"train_loss": float("inf")})])

    def test_what_is_not_installed_is_said_at_once(self):
        for make, extra in ((MLflow, "mlflow"), (lambda: WeightsAndBiases("p"), "wandb")):
            with mock.patch("importlib.util.find_spec", return_value=None), \
                    self.assertRaisesRegex(ModuleNotFoundError, rf"not installed.*pip install 'fedhpc\[{extra}\]'"):
                make()

    def test_lazy_names(self):
        self.assertIs(fedhpc.callbacks.TensorBoard, TensorBoard)


class ManyAtOnce(unittest.TestCase):
    def test_order_and_parts(self):
        told = []

        class Whole:
            def __init__(self, name, fails=False):
                self.name, self.fails = name, fails

            def begin(self, config):
                told.append((self.name, "begin", config))

            def __call__(self, record):
                told.append((self.name, record["round"]))

            def end(self, status):
                told.append((self.name, status))
                if self.fails:
                    raise ValueError(self.name)

        several = Several(Whole("a", fails=True), lambda record: told.append(("f", record["round"])), Whole("b"))
        several.begin(FLAT)
        self.assertIs(several({"round": 1}), False)
        self.assertIs(Several(lambda record: True, lambda record: None)({"round": 1}), True)
        with self.assertRaisesRegex(ValueError, "a"):
            several.end("complete")
        self.assertEqual(told, [("a", "begin", FLAT), ("b", "begin", FLAT), ("a", 1), ("f", 1), ("b", 1),
                                ("a", "complete"), ("b", "complete")])


class OfTensorBoard(Folder):
    def file(self):
        return glob.glob(str(self.folder / "log/events.out.tfevents.*"))

    def test_records(self):
        callback = TensorBoard(self.folder / "log")
        self.assertFalse((self.folder / "log").exists())  # where it is made and not used
        run(callback)
        found = messages(self.file()[0])
        self.assertEqual(len(found), 5)  # version, text, three rounds with numbers
        self.assertIn(b"brain.Event:2", found[0])
        self.assertIn(b"    train.lr = 0.1\n", found[1])
        self.assertIn(b"global_accuracy\x15" + struct.pack("<f", 0.75), found[3])
        self.assertIn(struct.pack("<f", float("inf")), found[4])
        callback({"round": 7, "train_loss": 1e300})  # goes on in a second file
        self.assertEqual(len(self.file()), 2)
        self.assertIn(b"\xff\xff\x7f\x7f", b"".join(messages(max(self.file(), key=os.path.getmtime))))
        callback.end("failed")

    def test_killed(self):
        self.killed("c.TensorBoard('log')")
        self.assertEqual(len(messages(self.file()[0])), 4)

    @has("tensorboard")
    def test_tensorboard_reads_it(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.util import tensor_util
        run(TensorBoard(self.folder / "log"))
        events = EventAccumulator(str(self.folder / "log")).Reload()
        tags = events.Tags()
        self.assertEqual(set(tags["scalars"]), {"train_loss", "global_accuracy"})
        self.assertEqual([(one.step, one.value) for one in events.Scalars("train_loss")],
                         [(1, 0.5), (2, 0.25), (6, float("inf"))])
        self.assertIn("config", tags["tensors"])
        self.assertEqual(events.summary_metadata["config"].plugin_data.plugin_name, "text")
        text = tensor_util.make_ndarray(events.Tensors("config")[0].tensor_proto).item().decode()
        self.assertEqual([line.strip() for line in text.splitlines()], [f"{k} = {v}" for k, v in FLAT.items()])


def stand_in(case, name, **members):
    """A library that is there for this test; returns it."""
    library = types.ModuleType(name)
    library.__spec__ = importlib.machinery.ModuleSpec(name, None)
    vars(library).update(members)
    there = mock.patch.dict(sys.modules, {name: library})
    there.start()
    case.addCleanup(there.stop)
    return library


class CallsOfMLflow(unittest.TestCase):
    """What the library is called with, also where it is not installed."""

    def setUp(self):
        self.client = mock.Mock()
        self.client.get_experiment_by_name.return_value = None
        self.client.create_experiment.return_value = "e1"
        self.client.create_run.return_value.info.run_id = "r1"
        self.client.get_run.return_value.data.params = {"algorithm.name": "fedavg"}
        entities = stand_in(self, "mlflow.entities", Param=lambda *it: it, Metric=lambda *it: it)
        self.mlflow = stand_in(self, "mlflow", MlflowClient=mock.Mock(return_value=self.client), entities=entities,
                               active_run=mock.Mock(return_value=None))
        environment = mock.patch.dict(os.environ)
        environment.start()
        self.addCleanup(environment.stop)
        for name in ("MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"):
            os.environ.pop(name, None)

    def logged(self, kind):
        return [call.kwargs[kind] for call in self.client.log_batch.call_args_list if kind in call.kwargs]

    def test_a_run(self):
        with mock.patch("time.time", return_value=12.3456):
            run(MLflow("digits", "place", run_name="first"))
        self.mlflow.MlflowClient.assert_called_once_with(tracking_uri="place")
        self.client.create_experiment.assert_called_once_with("digits")
        self.client.create_run.assert_called_once_with("e1", run_name="first")
        self.assertEqual({call.args for call in self.client.log_batch.call_args_list}, {("r1",)})
        # MLflow has the method's name already.
        self.assertEqual(self.logged("params"),
                         [[("run.rounds", "3"), ("train.lr", "0.1"), ("train.batch.size", "20")]])
        self.assertEqual(self.logged("metrics"), [[("train_loss", 0.5, 12345, 1)],
                                                  [("train_loss", 0.25, 12345, 2), ("global_accuracy", 0.75, 12345, 2)],
                                                  [("train_loss", float("inf"), 12345, 6)]])
        self.client.set_terminated.assert_called_once_with("r1", "FINISHED")

    def test_how_a_run_ends(self):
        for status, of_mlflow in (("complete", "FINISHED"), ("interrupted", "KILLED"), ("diverged", "FAILED"),
                                  ("failed", "FAILED")):
            self.client.set_terminated.reset_mock()
            run(MLflow(), status=status)
            self.client.set_terminated.assert_called_once_with("r1", of_mlflow)

    def test_many_and_long_parameters(self):
        MLflow().begin({f"k{i}": "x" * 7000 for i in range(250)})
        self.assertEqual([len(batch) for batch in self.logged("params")], [100, 100, 50])
        self.assertEqual({len(value) for batch in self.logged("params") for _, value in batch}, {6000})

    def test_which_experiment(self):
        self.client.get_experiment_by_name.return_value = mock.Mock(experiment_id="found")
        for variables, given, by_name, used in (({}, (), "Default", "found"),
                                                ({"MLFLOW_EXPERIMENT_NAME": "named"}, (), "named", "found"),
                                                ({"MLFLOW_EXPERIMENT_ID": "9"}, (), None, "9"),
                                                ({"MLFLOW_EXPERIMENT_ID": "9"}, ("digits",), "digits", "found")):
            with self.subTest(variables=variables, given=given), mock.patch.dict(os.environ, variables):
                self.client.reset_mock()
                run(MLflow(*given))
                self.assertEqual([call.args for call in self.client.get_experiment_by_name.call_args_list],
                                 [(by_name,)] if by_name else [])
                self.client.create_run.assert_called_once_with(used, run_name=None)
        self.client.create_experiment.assert_not_called()

    def test_an_active_run_is_used_and_left(self):
        self.mlflow.active_run.return_value = mock.Mock(info=mock.Mock(run_id="active"))
        run(MLflow())
        self.assertEqual({call.args for call in self.client.log_batch.call_args_list}, {("active",)})
        self.client.create_run.assert_not_called()
        self.client.set_terminated.assert_not_called()
        run(MLflow("digits"))  # an experiment of its own
        self.client.set_terminated.assert_called_once_with("r1", "FINISHED")

    def test_without_a_beginning_or_a_round(self):
        MLflow().end("failed")
        self.client.set_terminated.assert_not_called()
        MLflow()({"round": 4, "train_loss": 1.0})
        self.assertEqual((len(self.logged("params")), len(self.logged("metrics"))), (0, 1))


class CallsOfWeightsAndBiases(unittest.TestCase):
    """What the library is called with, also where it is not installed."""

    def setUp(self):
        self.wandb = stand_in(self, "wandb", init=mock.Mock())
        self.run = self.wandb.init.return_value

    def test_a_run(self):
        run(WeightsAndBiases("digits", name="first", tags=["a"]))
        self.wandb.init.assert_called_once_with(config=FLAT, project="digits", mode="offline", name="first", tags=["a"])
        self.assertEqual(self.run.log.call_args_list, [mock.call({"train_loss": 0.5}, step=1),
                                                       mock.call({"train_loss": 0.25, "global_accuracy": 0.75}, step=2),
                                                       mock.call({"train_loss": float("inf")}, step=6)])
        self.run.finish.assert_called_once_with(exit_code=0)

    def test_how_a_run_ends(self):
        for status in ("interrupted", "diverged", "failed"):
            self.run.finish.reset_mock()
            run(WeightsAndBiases("digits", mode="online"), status=status)
            self.run.finish.assert_called_once_with(exit_code=1)
        self.assertEqual(self.wandb.init.call_args.kwargs["mode"], "online")

    def test_what_json_has_no_word_for_is_text(self):
        WeightsAndBiases("digits").begin({"data.file": Path("a/b.csv")})
        self.assertEqual(self.wandb.init.call_args.kwargs["config"], {"data.file": "a/b.csv"})

    def test_without_a_beginning_or_a_round(self):
        WeightsAndBiases("digits").end("failed")
        self.run.finish.assert_not_called()
        WeightsAndBiases("digits")({"round": 4, "train_loss": 1.0})
        self.wandb.init.assert_called_once_with(config={}, project="digits", mode="offline")
        self.run.log.assert_called_once_with({"train_loss": 1.0}, step=4)


@has("mlflow")
class OfMLflow(Folder):
    def setUp(self):
        super().setUp()
        import mlflow
        self.mlflow = mlflow
        # MLflow 3 warns of places on disk, which need no server.
        environment = mock.patch.dict(os.environ, {"MLFLOW_ALLOW_FILE_STORE": "true"})
        environment.start()
        self.addCleanup(environment.stop)
        self.place = f"file://{self.folder}/runs"

    def only_run(self, experiment="digits"):
        client = self.mlflow.MlflowClient(self.place)
        identity = client.get_experiment_by_name(experiment).experiment_id
        one, = client.search_runs([identity])
        return one, [(m.step, m.value) for m in client.get_metric_history(one.info.run_id, "train_loss")]

    def test_run(self):
        run(MLflow("digits", self.place, run_name="first"))
        found, losses = self.only_run()
        self.assertEqual(found.data.params, {name: str(value) for name, value in FLAT.items()})
        self.assertEqual(losses, [(1, 0.5), (2, 0.25), (6, float("inf"))])
        self.assertEqual(found.data.metrics["global_accuracy"], 0.75)
        self.assertEqual((found.info.status, found.info.run_name), ("FINISHED", "first"))

    def test_many_and_long_parameters(self):
        callback = MLflow("digits", self.place)
        callback.begin({f"k{i}": "x" * 7000 for i in range(250)})
        callback.end("failed")
        found, _ = self.only_run()
        self.assertEqual({len(value) for value in found.data.params.values()}, {6000})
        self.assertEqual((len(found.data.params), found.info.status), (250, "FAILED"))

    def test_second_run_of_an_experiment_and_an_interrupted_one(self):
        for status in ("complete", "interrupted"):
            run(MLflow("digits", self.place), status=status)
        client = self.mlflow.MlflowClient(self.place)
        runs = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
        self.assertEqual(sorted(one.info.status for one in runs), ["FINISHED", "KILLED"])

    def test_active_run_is_used_and_left(self):
        self.mlflow.set_tracking_uri(self.place)
        self.addCleanup(self.mlflow.set_tracking_uri, None)
        with self.mlflow.start_run():
            run(MLflow(), RECORDS[:1], "interrupted")
            callback = MLflow()  # the run is resumed
            callback.begin({"run.rounds": 9, "run.live": "yes"})
            for record in RECORDS[1:]:
                callback(record)
            callback.end("complete")
            self.assertIsNotNone(self.mlflow.active_run())
        found, losses = self.only_run("Default")
        self.assertEqual(len(losses), 3)
        self.assertEqual(found.data.params, {name: str(value) for name, value in FLAT.items()} | {"run.live": "yes"})

    def test_chosen_experiment_is_used(self):
        self.mlflow.set_tracking_uri(self.place)
        self.addCleanup(self.mlflow.set_tracking_uri, None)
        self.mlflow.set_experiment("chosen")
        run(MLflow())
        self.assertEqual(self.only_run("chosen")[0].info.status, "FINISHED")

    def test_killed(self):
        self.killed(f"c.MLflow('digits', {self.place!r})")
        found, losses = self.only_run()
        self.assertEqual((losses, found.info.status), ([(1, 1.0), (2, 0.5)], "RUNNING"))


@has("wandb")
class OfWeightsAndBiases(Folder):
    def setUp(self):
        super().setUp()
        environment = mock.patch.dict(os.environ, {"WANDB_SILENT": "true", "WANDB_DIR": str(self.folder)})
        environment.start()
        self.addCleanup(environment.stop)

    def records(self):
        """(config, history) in the file of the only run."""
        from wandb.proto import wandb_internal_pb2
        path, = glob.glob(str(self.folder / "wandb/offline-run-*/*.wandb"))
        config, history = {}, []
        for data in stored(Path(path).read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            for item in [*record.run.config.update, *record.config.update]:
                config[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
            if record.HasField("history"):
                history.append({item.key or "/".join(item.nested_key): json.loads(item.value_json)
                                for item in record.history.item})
        return config, history

    def settled(self, rounds):
        """records(), when they are of so many rounds: a process of its own writes the file."""
        for _ in range(300):
            config, history = self.records()
            if len(history) >= rounds:
                break
            time.sleep(0.1)
        return config, history

    def test_offline(self):
        run(WeightsAndBiases("digits", name="first"))
        config, history = self.settled(3)
        self.assertEqual({name: config[name] for name in FLAT}, FLAT)
        self.assertEqual([(one["_step"], one["train_loss"]) for one in history],
                         [(1, 0.5), (2, 0.25), (6, float("inf"))])
        self.assertEqual(history[1]["global_accuracy"], 0.75)

    def test_killed(self):
        # The library writes every 15 seconds; here at once.
        self.killed("c.WeightsAndBiases('digits', settings={'x_transaction_log_flush_interval': 0.1})",
                    "import glob\n"
                    "while not any(b'_step' in open(one, 'rb').read() for one in glob.glob('wandb/*/*.wandb')):\n"
                    "    time.sleep(0.1)\n")
        config, history = self.settled(1)
        # The record of a step is written when the next one begins.
        self.assertEqual([one["train_loss"] for one in history][:1], [1.0])
        self.assertEqual(config["train.lr"], 0.1)


if __name__ == "__main__":
    unittest.main()
