"""Fetches a data set in its published form, checks it and puts it where data.dir finds it.

usage: tools/fetch_data.py NAME... [--to DIR] [--from DIR|URL]

NAME is one of mnist, fmnist, cifar10, cifar100, svhn, tinyimagenet, covtype. DIR defaults to $FEDHPC_DATA,
else ./data. Files that are there and right are left alone; a download that was interrupted is taken up
again. --from takes the published files from a folder (flat or laid out as below DIR) or from below
another address. Every file is checked against the sum its authors or the common libraries publish:
md5 for all but covtype, sha256 for that. Exit code 2 with one line on failure.
"""

import argparse
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
    digest: str
    algorithm: str = "md5"
    members: tuple = ()  # (name, md5 or size) of the files taken out of a .tar.gz
    counts: tuple = ()  # (pattern, number) of the files a .zip leaves in the folder

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Collection:
    """A data set: its folder below DIR and its files."""

    folder: str
    sources: tuple


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
}


def say(text: str) -> None:
    print("fetch_data:", text, flush=True)


def unpacked(path: pathlib.Path):
    """Opens a file for reading, seen through .gz or .xz."""
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    return opener(path, "rb")


def digest_of(file, algorithm: str) -> str:
    state = hashlib.new(algorithm)
    while block := file.read(BLOCK):
        state.update(block)
    return state.hexdigest()


def is_published(path: pathlib.Path, source: Source) -> bool:
    """Whether a file is, byte for byte, what was published."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return digest_of(file, source.algorithm) == source.digest


def is_member(path: pathlib.Path, wanted) -> bool:
    """Whether a file, maybe packed, holds a member with this md5 or size."""
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
        with tarfile.open(archive) as tar:
            inside = {pathlib.PurePosixPath(entry.name).name: entry for entry in tar if entry.isfile()}
            for name, _ in source.members:
                if name not in inside:
                    raise FetchError(f"{archive}: holds no {name}")
                part = folder / (name + ".part")
                with tar.extractfile(inside[name]) as file, open(part, "wb") as out:
                    shutil.copyfileobj(file, out, BLOCK)
                os.replace(part, folder / name)
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
        raise FetchError(f"{origin[0]}: holds no {source.name} with {source.algorithm} {source.digest}"
                         + (", nor what it contains" if source.members else ""))
    for path in found:
        say(f"copying {path}")
        copy(path, folder / path.name)


def fetch(name: str, root: pathlib.Path, origin: str, collections: dict) -> None:
    """Brings one data set below `root`."""
    collection = collections[name]
    folder = root / collection.folder
    folder.mkdir(parents=True, exist_ok=True)
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
    say(f"{name}: ready in {folder}")


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
