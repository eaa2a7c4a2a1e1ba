"""Which files of a published data set the simulator would not find."""

from pathlib import Path

from .fetch_data import COLLECTIONS

PACKINGS = ("", ".gz", ".xz")  # what the simulator unpacks by itself
LISTS = {"tinyimagenet": ("wnids.txt",)}  # archives of many files: the one that is read first


def names(dataset):
    """(folder, files without packing) of a data set; no files for generators and for files of one's own."""
    if dataset not in COLLECTIONS:
        return "", ()
    collection = COLLECTIONS[dataset]
    files = LISTS.get(dataset) or [name for source in collection.sources
                                   for name in ([member for member, _ in source.members] or [source.name])]
    return collection.folder, tuple(name.removesuffix(".gz") for name in files)


def missing(dataset, directory):
    """What is missing of `dataset` below `directory` (a path or None), in a few words; "" if nothing is.

    Looks where the simulator looks: DIR/FOLDER/FILE and DIR/FILE, as they are or packed. The content is
    not checked.
    """
    folder, files = names(dataset)
    if not files:
        return ""
    if not directory:
        return f"{dataset}: no folder of data, set --data or FEDHPC_DATA"
    for name in files:
        places = (Path(directory) / folder / name, Path(directory) / name)
        if not any(Path(f"{place}{packing}").is_file() for place in places for packing in PACKINGS):
            return f"{dataset}: no {folder}/{name} below {directory}, tools/fetch_data.py {dataset} gets it"
    return ""
