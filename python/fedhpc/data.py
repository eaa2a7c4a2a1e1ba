"""Data sets of one's own as the file that `data.name=hdf5` reads.

    keys = fedhpc.write_dataset("mine.h5", x, y, clients=hospital)
    fedhpc.run(keys | {"model.name": "mlr", "run.rounds": 20})

The file holds /x_train, /y_train, /x_test, /y_test, /label_train, /label_test, /client_train and /client_test. Where
clients and test samples are given, /partition says which samples each client trains on and is tested on. /names has the
names of clients, edges and classes in order of their numbers. A file that is being written has another name until it is
whole.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np

from . import _data_leaf, _data_pflib, _data_synthetic, _data_tff
from ._data_file import OneClient, Writer
from ._data_sources import blocks, class_names, is_table
from ._data_values import as_array, ids_of
from ._written import sources_of
from .errors import ConfigError, DataError

__all__ = ["fetch", "from_leaf", "from_pflib", "from_tff", "keys", "synthetic", "write_dataset"]


def keys(path):
    """The keys of a configuration that runs on a file of this module, as a dict for `fedhpc.run`.

    Natural clients without test samples are dealt by data.partition=natural and split their own samples. With test
    samples the partition in the file is used: data.split=client where clients have test samples of their own, official
    where the server has them all. Raises DataError where the file is not one of samples.
    """
    path = Path(path).resolve()
    try:
        with h5py.File(path) as file:
            if "x_train" not in file:
                raise DataError(f"{path} has no /x_train; give a file that write_dataset has written")
            found = {"data.name": "hdf5", "data.file": str(path)}
            if "partition" in file:
                own = file["partition/test_offsets"][-1] > 0
                found |= {"data.partition": "file", "data.partition_file": str(path),
                          "data.split": "client" if own else "official"}
                if "edge_of_client" in file["partition"]:
                    found["topology.edges"] = int(file["partition/edge_of_client"][:].max()) + 1
            elif "client_train" in file:
                found |= {"data.partition": "natural", "data.clients": int(file["client_train"][:].max()) + 1,
                          "data.split": "client"}
            elif "x_test" in file:
                found["data.split"] = "official"
            return found
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def write_dataset(path, x, y=None, *, labels=None, clients=None, test=None, test_labels=None, test_clients=None,
                  edges=None, classes=None, columns=None, channels="auto"):
    """Writes samples and labels to the file `path`; returns the keys of a configuration that runs on it.

    x: array [samples, features], [samples, height, width] or [samples, channels, height, width]; also [samples,
        height, width, channels], which is written with the channels in front. uint8 are pixels, which the engine
        divides by 255; floats and other whole numbers stay as they are. An array on disk (numpy.memmap, h5py) is
        read in parts. Or, without y, a data set: of torchvision or others with pairs (image, label), a Dataset or
        DatasetDict of Hugging Face, a FederatedDataset of flwr-datasets, whose partitions become clients.
    y: [samples], whole numbers from 0; the largest plus 1 is the number of classes. Or targets: whole numbers
        [samples, T], which are several labels where all are 0 or 1 and else the classes of a sequence's T places; or
        floats [samples] or [samples, T], the numbers of a regression. Floats that are all whole numbers from 0 are
        labels where they are [samples], without `labels`; [samples, 1] are numbers.
    labels: [samples], whole numbers from 0 beside such targets: what partitions and histograms count.
    clients: [samples], the id of each sample's client, numbers or words, or the name of a column. Clients are numbered
        in sorted order; /names/clients of the file keeps the ids.
    test: a pair (x, y) or a data set as x, or a mask [samples] of bools, true for what is tested on. Test samples
        without test_clients are the server's; with a mask clients keep theirs.
    test_labels, test_clients: as labels and clients, of the test samples.
    edges: the edge of each client, a dict {client: edge} or [clients] in sorted order of clients; needs test.
    classes: names of the classes 0 to K - 1; Hugging Face's and torchvision's are taken from the data set.
    columns: (column of samples, column of labels) of a Hugging Face data set, where they cannot be guessed; no other.
    channels: "first", "last" or "auto": where images have their channels; "auto" looks for a length of 1, 3 or 4.

    Raises ConfigError for arguments that do not go together, DataError for samples that the engine cannot use. Then
    no file is left, and one that was there stays. Warns where class 0 has no sample, floats are taken as labels, or
    floats [samples, T] that are all 0 or 1 (T > 1) as numbers, and of test clients without any to train on.
    """
    federated = hasattr(x, "load_partition")
    if isinstance(x, Mapping) and y is None and not is_table(x):
        if "train" not in x:
            raise ConfigError(f"there is no split train among {', '.join(map(str, x))}; give one of them as x")
        x, test = x["train"], x.get("test") if test is None else test
    source = x if y is None else (x, y)
    _check_arguments(clients, test, test_clients, x if federated else None)
    if classes is not None and (isinstance(classes, (str, bytes)) or not np.iterable(classes)):
        raise ConfigError(f"classes cannot be {classes!r}; give a list of names, one for each class, or leave it out: "
                          "the largest label says how many there are")
    _check_labels(labels, test, test_labels, federated)
    if columns is not None and not (federated or is_table(x) or is_table(test)):
        raise ConfigError(f"columns={columns!r} names columns, and these samples have none; leave it out")
    with Writer(path, channels, sources=sources_of((x, y, labels, test))) as file:
        if federated:
            source = _append_partitions(file, x, columns)
        else:
            _append(file, "train", source, columns, clients, labels, mask=_mask_of(test))
        if test is not None and _mask_of(test) is None:
            _append(file, "test", test, columns, test_clients, test_labels)
        if classes is None and file.has_labels():
            classes = class_names(source, columns, file.largest_label())
        file.finish(edges, classes)
    if file.takes_floats_as_labels():
        warnings.warn("y holds floats that are all whole numbers, which are taken as labels; y.astype(int) says so, and "
                      "y.reshape(-1, 1) makes them the numbers of a regression", stacklevel=2)
    if file.takes_yes_and_no_as_numbers():
        warnings.warn("y holds floats that are all 0 or 1, which are taken as the numbers of a regression; "
                      "y.astype(int) makes them labels, each of them yes or no", stacklevel=2)
    if classes is None and file.lacks_label_0():
        warnings.warn("no sample has the label 0, and classes are numbered from 0; where labels count from 1, subtract 1",
                      stacklevel=2)
    return keys(path)


def _check_arguments(clients, test, test_clients, federated):
    if test_clients is not None and (clients is None or test is None or _mask_of(test) is not None):
        raise ConfigError("test_clients needs clients and test, and no mask; give those, or leave it out")
    if federated is None:
        return
    if clients is not None or _mask_of(test) is not None:
        raise ConfigError("clients are the partitions of a FederatedDataset; leave clients out, and give no mask")
    if test is not None and "test" in federated.partitioners:
        raise ConfigError("the FederatedDataset has test samples of its clients; leave test out, or its partitioner of "
                          "the split test")


def _check_labels(labels, test, test_labels, federated):
    if labels is not None and federated:
        raise ConfigError("labels beside targets are not for a FederatedDataset; leave them out")
    apart = test is not None and _mask_of(test) is None
    if (labels is not None and apart) != (test_labels is not None):
        raise ConfigError("labels and test_labels go together where test samples are given apart; give both or neither")


def _mask_of(test):
    """The mask that `test` is, or None where it is data or not given."""
    if test is None or isinstance(test, (tuple, Mapping, str)) or is_table(test):
        return None
    if isinstance(test, list) and all(isinstance(one, bool) for one in test):
        return np.array(test)
    if str(getattr(test, "dtype", "")).removeprefix("torch.") == "bool":
        return as_array(test, "the mask test")
    return None


def _append(file, part, source, columns, clients, labels=None, mask=None):
    """Adds a source of samples; those of the mask are test samples of the same clients."""
    column = clients if isinstance(clients, str) else None
    ids = None if clients is None or column else ids_of(clients)
    if ids is not None and ids.ndim != 1:
        raise DataError(f"clients has shape {ids.shape}; give one id for each sample")
    labels = None if labels is None else as_array(labels, "labels")
    if labels is not None and labels.ndim != 1:
        raise DataError(f"labels has shape {labels.shape}; give one for each sample")
    first = 0
    for x, y, of_column in blocks(source, columns, column):
        end = first + len(y)
        mine = of_column if column else None if ids is None else ids[first:end]
        own = None if labels is None else labels[first:end]
        if mask is None:
            file.append(part, x, y, mine, own)
        else:
            x, y, tested = as_array(x, "x"), as_array(y, "y"), mask[first:end]
            if tested.shape != (len(y),):
                raise DataError(f"the mask test has shape {mask.shape}; give one entry for each sample")
            mine = None if mine is None else ids_of(mine)
            for name, chosen in (("train", ~tested), ("test", tested)):
                file.append(name, x[chosen], y[chosen], None if mine is None else mine[chosen],
                            None if own is None else own[chosen])
        first = end
    if first == 0:
        raise DataError(f"there are no samples to {part} on; give at least one")
    for name, values in (("clients", ids), ("labels", labels), ("the mask test", mask)):
        if values is not None and values.shape != (first,):
            raise DataError(f"{name} has shape {values.shape}, expected ({first},), one entry for each sample")


def _append_partitions(file, federated, columns):
    """Adds the partitions of a FederatedDataset as clients; returns one of them."""
    partitioners, one = federated.partitioners, None
    if "train" not in partitioners:
        raise ConfigError("the FederatedDataset has no partitioner of its split train; give it one")
    for part in ("train", "test"):
        number, count = 0, 1 if part in partitioners else 0
        while number < count:
            one = federated.load_partition(number, part)
            # Some partitioners know how many partitions they make when they have made one.
            count = partitioners[part].num_partitions
            for x, y, _ in blocks(one, columns):
                file.append(part, x, y, OneClient(number))
            number += 1
    return one


def from_tff(path, train, test=None, *, splits=None, window=10, length=None, vocabulary=None, words=10000,
             sentences=None, test_clients=None):
    """Writes a data set of TensorFlow Federated, client by client; returns the keys as write_dataset does.

    train, test: HDF5 files such as fed_emnist_train.h5 and fed_emnist_test.h5; or train is an SQLite database.
    splits: the names of one or two splits of that database, such as ("train", "test").

    FEMNIST: images [28, 28], 62 or 10 classes. Pixels that are multiples of 1/255 are written as uint8, which the
    engine divides by 255 again. The background stays 1.
    CIFAR-100: images [3, 32, 32], 100 fine labels. The test clients are others than the training clients, so the server
    has their samples.
    Shakespeare: with `length`, samples and labels are sequences [length] of characters, as Reddi et al. (2021) cut a
    snippet; else every character is a sample. Its class is its place among the 86 characters of the published
    vocabulary; its features are the `window` characters before it, each as 86 pixels of which one is 255. A character
    outside the vocabulary, or before the snippet, is 86 zeros, and is no sample.
    Stack Overflow: samples and labels are sequences of words; one of a sentence, which is cut at `length` (20). The
    server has the test samples.

    Sequences are whole numbers. The label of a place is the sample's next character or word. 0 fills up and is no
    label; V characters or words have 1 to V; V + 1 is any other, V + 2 the beginning, V + 3 the end.

    vocabulary: of Stack Overflow, the file stackoverflow.word_count or a list of words, of which the first `words` are
        known.
    sentences: the most of each training client of Stack Overflow, the first ones. test_clients: how many clients the
        test samples are of, the first ones; None: all.

    Clients of FEMNIST and Shakespeare are tested on their own samples. Raises DataError for a file of another kind.
    """
    options = {"window": window, "length": length, "vocabulary": vocabulary, "words": words, "sentences": sentences,
               "test_clients": test_clients}
    _data_tff.write_tff(Path(path), train, test, splits, options)
    return keys(path)


def from_leaf(path, train, test=None, *, kind="auto", classes=None):
    """Writes a data set in LEAF's JSON files, one file at a time; returns the keys as write_dataset does.

    train, test: folders of *.json or single files; or train is a folder with the folders train and test. Without test
        samples, of all_data_*.json for instance, clients split their own samples. Where no client of test is among
        those of train, the server has the test samples.
    kind: "images", lists of pixels from 0 to 1, as FEMNIST's 784, are written as uint8 [28, 28]; "text", such as
        Shakespeare, as numbers [characters] of LEAF's 80 characters, with the next character as label; "numbers", such
        as Synthetic, as float32 [features]. "auto" looks at the first client.
    classes: how many there are, where the labels may not show all of them; a text has 80.

    Raises DataError for files of another layout.
    """
    _data_leaf.write_leaf(Path(path), train, test, kind, classes)
    return keys(path)


def synthetic(path, rule, *, clients=None, classes=None, features=60, alpha=None, beta=None, train_fraction=None,
              seed=None, split_seed=None):
    """Writes a synthetic data set in its published law, client by client; returns the keys as write_dataset does.

    rule: "fedprox", Synthetic(alpha, beta) of Li et al. (2020), section 5.1, with 30 clients, 10 classes and
        floor(exp(4 + 2 N(0, 1))) + 50 samples of a client: data.name=synthetic with numbers of samples as published.
        "leaf", LEAF's (Caldas et al. 2018, appendix), with 1000 clients, 5 classes and
        min(floor(exp(3 + 2 N(0, 1))) + 5, 1000) samples: y = argmax(W x + N(0, 0.1)), W = Q u_k, u_k ~ N(mu, 0.1).
    alpha, beta: of "fedprox" alone, deviations of the clients' models and means [1, 1].
    train_fraction: share of its samples that a client trains on; as published, 0.9 and 0.6.
    seed, split_seed: of numpy's legacy generator, in the order of the published programs, and of Python's for the
        split. As published: 931231 of "leaf"; else 0.

    Raises ConfigError for other rules, and for what is none of the rule.
    """
    _data_synthetic.write_synthetic(Path(path), rule, {
        "clients": clients, "classes": classes, "features": features, "alpha": alpha, "beta": beta,
        "train_fraction": train_fraction, "seed": seed, "split_seed": split_seed})
    return keys(path)


def fetch(name, folder="data", *, origin=None):
    """Brings a published data set below `folder`, checks it, and returns the folder of its files.

    name: what `tools/fetch_data.py --help` lists, "fed_emnist" for instance. origin: a folder or an address that has
    the published files, in place of the publisher's. What came of an interrupted download is gone on with. Raises
    DataError where the files cannot be had or are not the published ones.
    """
    from .tools import fetch_data  # brings what a run does not need

    if name not in fetch_data.COLLECTIONS:
        raise DataError(f"no data set {name!r}; there are {', '.join(fetch_data.COLLECTIONS)}")
    try:
        fetch_data.fetch(name, Path(folder), origin, fetch_data.COLLECTIONS)
    except (fetch_data.FetchError, OSError) as error:
        raise DataError(str(error)) from error
    return Path(folder) / fetch_data.COLLECTIONS[name].folder


def from_pflib(path, folder):
    """Writes a data set of PFLlib, client by client; returns the keys as write_dataset does.

    folder: the one with train/0.npz, test/0.npz and config.json. Clients are tested on their own samples. The files are
    pickles, of which numbers and arrays alone are read: no code in them runs. Raises DataError for anything else.
    """
    _data_pflib.write_pflib(Path(path), Path(folder))
    return keys(path)
