"""Fetches a data set in its published form, checks it and puts it where data.dir finds it.

usage: tools/fetch_data.py NAME... [--to DIR] [--from DIR|URL]

NAME is one of mnist, fmnist, cifar10, cifar100, svhn, tinyimagenet, covtype, which data.name reads, or of
fed_emnist, fed_cifar100, fed_shakespeare, fed_stackoverflow (TensorFlow Federated's), fedprox_synthetic and
fedml_mnist, which fedhpc.data makes files of (docs/how-to/benchmarks.md). DIR defaults to $FEDHPC_DATA, else
./data. Files that are there and right are left alone; a download that was interrupted is taken up again. --from
takes the published files from a folder (flat or laid out as below DIR) or from below another address. Every file
is checked against the sum its authors or the common libraries publish: md5, sha256 or git's. Where nobody
publishes one, its sha256 is said. Exit code 2 with one line on failure.
"""

import argparse
import contextlib
import fcntl
import gzip
import hashlib
import http.client
import lzma
import os
import pathlib
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from dataclasses import dataclass

BLOCK = 1 << 20
TIMEOUT = 60  # [s] without any data


class FetchError(Exception):
    """One sentence for the user."""


@dataclass(frozen=True)
class Source:
    """One published file: address, sum, and what is unpacked from it (nothing: it stays as it is)."""

    url: str
    digest: str  # None: its publisher gives none
    algorithm: str = "md5"  # of hashlib, or git: of a file's blob in a commit
    members: tuple = ()  # (name, md5 or size, or None where neither is known) of the files taken out of a .tar
    counts: tuple = ()  # (pattern, number) of the files a .zip leaves in the folder
    saved_as: str = ""  # the last part of the address unless given

    @property
    def name(self) -> str:
        return self.saved_as or self.url.rsplit("/", 1)[1]

    @property
    def sum(self) -> str:
        return f"{self.algorithm} {self.digest}" if self.digest else "no published sum"


@dataclass(frozen=True)
class Collection:
    """A data set: its folder below DIR and its files."""

    folder: str
    sources: tuple


TFF = "https://storage.googleapis.com/tff-datasets-public/"
FEDPROX = "https://raw.githubusercontent.com/litian96/FedProx/d2a4501f319f1594b732d88315c5ca1a72855f50/data/"
# git's sums of the files for training and testing in that commit.
FEDPROX_BLOBS = {
    "synthetic_iid": ("ba2af903301f9adbf44c6851712a3a94144fcb1a", "e2330350cf308e3083b09bf3df6fb5f3801e3458"),
    "synthetic_0_0": ("0d3db5f6a30e608d804ff4724aaf2d7b1de86e15", "a862f70b760859528ed832cc77701551ab90dbb7"),
    "synthetic_0.5_0.5": ("ada1be0a78bbe5220af457d9373721dd80b5b2df", "62a5dae1eaf3f4fdebae11c7f9cfc0a7e72ea2cd"),
    "synthetic_1_1": ("537d644f6e0f4e59cacf54a7217c38fd3c3a539b", "d66fb030578092dff8487247fffe66b96115c789"),
}


def federated(name: str, digest: str, *members: str) -> Source:
    """An archive of TensorFlow Federated with the sum that its loaders have."""
    return Source(f"{TFF}{name}.tar.bz2", digest, "sha256", members=tuple((member, None) for member in members))


def fedprox(name: str) -> tuple:
    train, test = FEDPROX_BLOBS[name]
    return (Source(f"{FEDPROX}{name}/data/train/mytrain.json", train, "git", saved_as=f"{name}_train.json"),
            Source(f"{FEDPROX}{name}/data/test/mytest.json", test, "git", saved_as=f"{name}_test.json"))


def sources(base: str, *names_and_sums: tuple) -> tuple:
    return tuple(Source(base + name, digest) for name, digest in names_and_sums)


CIFAR10_MEMBERS = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}

COLLECTIONS = {
    "mnist": Collection("mnist", sources(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"))),
    "fmnist": Collection("fashion-mnist", sources(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"))),
    "cifar10": Collection("cifar-10-batches-bin", (
        Source("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
               "c32a1d4ab5d03f1284b67883e8d87530", members=tuple(CIFAR10_MEMBERS.items())),)),
    "cifar100": Collection("cifar-100-binary", (
        Source("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
               "03b5dce01913d631647c71ecec9e9cb8", members=(("train.bin", 50000 * 3074), ("test.bin", 10000 * 3074))),)),
    "svhn": Collection("svhn", sources(
        "http://ufldl.stanford.edu/housenumbers/",
        ("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
        ("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"))),
    "tinyimagenet": Collection("tiny-imagenet-200", (
        Source("http://cs231n.stanford.edu/tiny-imagenet-200.zip",
               "90528d7ca1a48142e341f4ef8d21d0de",
               counts=(("train/*/images/*.JPEG", 100000), ("val/images/*.JPEG", 10000))),)),
    "covtype": Collection("covtype", (
        Source("https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",
               "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771", "sha256"),)),
    "fed_emnist": Collection("fed_emnist", (federated(
        "fed_emnist", "fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0",
        "fed_emnist_train.h5", "fed_emnist_test.h5"),)),
    "fed_cifar100": Collection("fed_cifar100", (federated(
        "fed_cifar100", "e8575e22c038ecef1ce6c7d492d7abee7da13b1e1ba9b70a7fc18531ba7590de",
        "fed_cifar100_train.h5", "fed_cifar100_test.h5"),)),
    "fed_shakespeare": Collection("fed_shakespeare", (federated(
        "shakespeare", "0285be9906cb5f268092eee4edeeacfc2af4574f2941f7cc2f08a321d7f5c707",
        "shakespeare_train.h5", "shakespeare_test.h5"),)),
    "fed_stackoverflow": Collection("fed_stackoverflow", (federated(
        "stackoverflow.word_count", "1dc00256d6e527c54b9756d968118378ae14e6692c0b3b6cad470cdd3f0c519c",
        "stackoverflow.word_count"), federated(
        "stackoverflow", "99eca2f8b8327a09e5fc123979df2d237acbc5e52322f6d86bf523ee47b961a2",
        "stackoverflow_train.h5", "stackoverflow_held_out.h5", "stackoverflow_test.h5"))),
    "fedprox_synthetic": Collection("fedprox_synthetic", tuple(
        source for name in FEDPROX_BLOBS for source in fedprox(name))),
    # FedML gives no sum.
    "fedml_mnist": Collection("MNIST", (
        Source("https://fedcv.s3.us-west-1.amazonaws.com/MNIST.zip", None, "sha256",
               counts=(("train/*.json", 1), ("test/*.json", 1))),)),
}


def say(text: str) -> None:
    print("fetch_data:", text, flush=True)


def unpacked(path: pathlib.Path):
    """Opens a file for reading, seen through .gz or .xz."""
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    return opener(path, "rb")


def digest_of(file, algorithm: str) -> str:
    state = hashlib.new("sha1" if algorithm == "git" else algorithm)
    if algorithm == "git":
        state.update(b"blob %d\0" % os.fstat(file.fileno()).st_size)
    while block := file.read(BLOCK):
        state.update(block)
    return state.hexdigest()


def is_published(path: pathlib.Path, source: Source) -> bool:
    """Whether a file is, byte for byte, what was published; without a published sum, whether it is there."""
    if not path.is_file() or source.digest is None:
        return path.is_file()
    with open(path, "rb") as file:
        return digest_of(file, source.algorithm) == source.digest


def is_member(path: pathlib.Path, wanted) -> bool:
    """Whether a file, maybe packed, holds a member with this md5 or size; None: whether it is there."""
    if wanted is None:  # it got its name when it was whole, out of an archive that was right
        return path.is_file()
    try:
        with unpacked(path) as file:
            if isinstance(wanted, str):
                return digest_of(file, "md5") == wanted
            return sum(len(block) for block in iter(lambda: file.read(BLOCK), b"")) == wanted
    except (OSError, EOFError, lzma.LZMAError, zlib.error):
        return False


def find_member(folders: list, name: str, wanted) -> pathlib.Path:
    """The file that holds a member, packed or not, in one of the folders; None when there is none."""
    candidates = [folder / (name + packing) for folder in folders for packing in ("", ".gz", ".xz")]
    return next((path for path in candidates if is_member(path, wanted)), None)


def is_there(source: Source, folder: pathlib.Path) -> bool:
    if source.members:
        return all(find_member([folder], name, wanted) for name, wanted in source.members)
    if source.counts:
        return all(sum(1 for _ in folder.glob(pattern)) == count for pattern, count in source.counts)
    return is_published(folder / source.name, source)


def download(url: str, part: pathlib.Path) -> None:
    """Appends to `part` what is missing of the file at `url`."""
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "fedhpc fetch_data"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            with open(part, "ab" if answer.status == 206 else "wb") as file:
                before = file.tell()
                shutil.copyfileobj(answer, file, BLOCK)
                came = file.tell() - before
            promised = answer.headers.get("Content-Length")
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is missing; the sum decides
            return
        raise FetchError(f"{url}: the server answers {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise FetchError(f"{url}: {reason}; what came is kept, run the command again") from error
    if promised is not None and came != int(promised):
        raise FetchError(f"{url}: ended after {came} of {promised} bytes; what came is kept, run the "
                         "command again")


def obtain(source: Source, url: str, folder: pathlib.Path) -> pathlib.Path:
    """Downloads a published file to a temporary name in `folder` and checks it."""
    part = folder / (source.name + ".part")
    say(f"fetching {url}")
    resumed = part.exists()
    download(url, part)
    if not is_published(part, source) and resumed:
        part.unlink()  # a part of something else
        download(url, part)
    if not is_published(part, source):
        with open(part, "rb") as file:
            found = digest_of(file, source.algorithm)
        part.unlink()
        raise FetchError(f"{url}: {source.algorithm} {found}, expected {source.digest}; removed")
    if source.digest is None:
        with open(part, "rb") as file:
            say(f"{source.name}: its publisher gives no sum; this one has {source.algorithm} "
                f"{digest_of(file, source.algorithm)}")
    return part


def copy(path: pathlib.Path, target: pathlib.Path) -> None:
    part = target.with_name(target.name + ".part")
    shutil.copyfile(path, part)
    os.replace(part, target)


def unpack(source: Source, archive: pathlib.Path, folder: pathlib.Path) -> None:
    """Takes the members out of an archive, each under a temporary name first."""
    try:
        if source.counts:
            unpack_folder(archive, folder)
            return
        wanted = {name for name, _ in source.members}
        with tarfile.open(archive) as tar:
            for entry in tar:  # once from front to end: going back unpacks all that is before it again
                name = pathlib.PurePosixPath(entry.name).name
                if name in wanted and entry.isfile():
                    part = folder / (name + ".part")
                    with tar.extractfile(entry) as file, open(part, "wb") as out:
                        shutil.copyfileobj(file, out, BLOCK)
                    os.replace(part, folder / name)
                    wanted.remove(name)
        if wanted:
            raise FetchError(f"{archive}: holds no {min(wanted)}")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise FetchError(f"{archive}: cannot be unpacked: {error}") from error


def unpack_folder(archive: pathlib.Path, folder: pathlib.Path) -> None:
    """Unpacks a .zip that holds one folder of this name."""
    temporary = folder.with_name(folder.name + ".part")
    shutil.rmtree(temporary, ignore_errors=True)
    with zipfile.ZipFile(archive) as file:
        file.extractall(temporary)
    if not (temporary / folder.name).is_dir():
        raise FetchError(f"{archive}: holds no folder {folder.name}")
    for entry in (temporary / folder.name).iterdir():
        target = folder / entry.name
        if target.is_dir():
            shutil.rmtree(target)
        os.replace(entry, target)
    shutil.rmtree(temporary)


def take_from_folder(source: Source, origin: list, folder: pathlib.Path) -> None:
    """Copies a source, or its members, from one of the folders `origin`."""
    for place in origin:
        if is_published(place / source.name, source):
            say(f"copying {place / source.name}")
            if source.members or source.counts:
                unpack(source, place / source.name, folder)
            else:
                copy(place / source.name, folder / source.name)
            return
    found = [find_member(origin, name, wanted) for name, wanted in source.members]
    if not found or None in found:
        raise FetchError(f"{origin[0]}: holds no {source.name} with {source.sum}"
                         + (", nor what it contains" if source.members else ""))
    for path in found:
        say(f"copying {path}")
        copy(path, folder / path.name)


def fetch(name: str, root: pathlib.Path, origin: str, collections: dict) -> None:
    """Brings one data set below `root`."""
    collection = collections[name]
    folder = root / collection.folder
    folder.mkdir(parents=True, exist_ok=True)
    complete = all(is_there(source, folder) for source in collection.sources)
    with contextlib.nullcontext() if complete else alone_in(folder):  # one may look at a folder of somebody else
        bring(name, collection, folder, origin)
    say(f"{name}: ready in {folder}")


@contextlib.contextmanager
def alone_in(folder: pathlib.Path):
    """Waits until no other call fetches into the folder: two would write the same parts."""
    with open(folder / ".fetch.lock", "a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{folder}: another fetch_data.py is at work there; waiting for its end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks
        yield


def bring(name: str, collection, folder: pathlib.Path, origin: str) -> None:
    """What fetch() does in a folder that it has for itself."""
    for source in collection.sources:
        if is_there(source, folder):
            say(f"{name}: {source.name} is there")
            continue
        if origin is not None and "://" not in origin:
            place = pathlib.Path(origin)
            take_from_folder(source, [place, place / collection.folder], folder)
        else:
            url = source.url if origin is None else f"{origin.rstrip('/')}/{source.name}"
            part = obtain(source, url, folder)
            if source.members or source.counts:
                unpack(source, part, folder)
                part.unlink()
            else:
                os.replace(part, folder / source.name)
        if not is_there(source, folder):
            raise FetchError(f"{folder}: not what {source.name} should give; remove it and try again")


def main(arguments: list = None, collections: dict = None) -> int:
    collections = COLLECTIONS if collections is None else collections
    parser = argparse.ArgumentParser(description="Fetches data sets and checks them.")
    parser.add_argument("names", nargs="+", metavar="NAME", help=", ".join(collections))
    parser.add_argument("--to", metavar="DIR", default=os.environ.get("FEDHPC_DATA") or "data",
                        help="where data.dir points to [$FEDHPC_DATA, else ./data]")
    parser.add_argument("--from", dest="origin", metavar="DIR|URL",
                        help="take the published files from here")
    given = parser.parse_args(arguments)
    try:
        for name in given.names:
            if name not in collections:
                raise FetchError(f"no data set '{name}'; there are {', '.join(collections)}")
            fetch(name, pathlib.Path(given.to), given.origin, collections)
    except (FetchError, OSError) as error:
        print(f"fetch_data: error: {error}", file=sys.stderr)
        return 2
    return 0
