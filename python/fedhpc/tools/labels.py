"""Names for runs that are shown side by side, and groups of runs that differ in their seeds only."""

from collections import Counter
from pathlib import Path

from .results import DIGESTS, comparable

SEEDS = {"run.seed", "data.seed"}
# Where results go, how they are watched and which machine works: they do not change what comes out.
NOT_IN_LEGEND = {"run.output", "run.progress", "run.log_level", "run.mpi", "run.save", "run.live",
                 "run.checkpoint_every", "run.collective_timeout", "run.grace_seconds", "data.dir", "train.block",
                 "store.device_budget"}
LABEL_KEYS = 4  # most settings named in one legend entry
DIGEST, MODEL, CODE = "data.digest", "model.digest", "code.digest"  # in the place of paths, which differ between machines
OF_ATTRIBUTES = dict(zip(DIGESTS, (DIGEST, MODEL, CODE)))
FILES = {DIGEST: ("data.file", "data.test_file"), MODEL: ("model.file",), CODE: ()}  # known by their names then
# What these keys choose has other files as a matter of course.
CHOSEN_BY = {DIGEST: ("data.name", *FILES[DIGEST]), MODEL: ("model.name", *FILES[MODEL]),
             CODE: ("algorithm.name", "run.plugin"), "run.plugin": ("algorithm.name",)}


def settings(run, ignored=frozenset()):
    """The configuration of a run without keys that say nothing about its numbers, and without `ignored` ones; with the
    digests of data, model and code that the file has, and then their files, as plug-ins always, without folders."""
    own = {key: value for key, value in run.config.items() if key not in NOT_IN_LEGEND and key not in ignored}
    if "run.plugin" in own:
        own["run.plugin"] = ",".join(Path(plugin).name for plugin in listed(own["run.plugin"]))
    for attribute, key in OF_ATTRIBUTES.items():
        if attribute in run.attributes:
            own[key] = run.attributes[attribute]
            own.update({file: Path(own[file]).name for file in FILES[key] if file in own})
    return own


def differs(key, configs):
    """Whether configurations that have the key differ in it, alike in those keys by which it is chosen."""
    values = {}
    for config in configs:
        if key in config:
            values.setdefault(tuple(map(config.get, CHOSEN_BY.get(key, ()))), set()).add(config[key])
    return any(len(several) > 1 for several in values.values())


def differing_keys(configs):
    """The keys that have more than one value among the configurations that have them; names first."""
    keys = dict.fromkeys(key for config in configs for key in config)
    differing = [key for key in keys if differs(key, configs)]
    return sorted(differing, key=lambda key: (key != "algorithm.name", key != "data.name"))


def labels_of(runs, ignored=frozenset(), most=LABEL_KEYS):
    """One entry per run: the settings in which the configurations differ, of runs that have these alike the keys that
    not all of them have, then the file's name. Runs of two files have two entries."""
    own = [settings(run, ignored) for run in runs]
    if all(config.get("data.seed") == config.get("run.seed") for config in own):  # as without the key
        own = [{key: value for key, value in config.items() if key != "data.seed"} for config in own]
    differing = differing_keys(own)
    names = Counter(key.split(".")[1] for key in differing)
    labels = [[words_of(*said(run, key, config[key]), names) for key in [key for key in differing if key in config][:most]]
              for run, config in zip(runs, own)]
    for alike in alike_in(labels):
        shared = set.intersection(*(set(own[i]) for i in alike))
        for key in dict.fromkeys(key for i in alike for key in own[i] if key not in shared and key not in FILES):
            for i in alike:
                labels[i] += [words_of(key, own[i][key])] if key in own[i] else absent(key)
    labels = [", ".join(parts) for parts in labels]
    names = names_of_files([run.path for run in runs])
    twice = len(set(labels)) < len(runs)
    return [f"{label} ({name})" if label and twice else label or name for label, name in zip(labels, names)]


def words_of(key, value, names=Counter()):
    """A setting in a label: a name speaks for itself; of two keys of one name, counted in `names`, the whole key."""
    name = key.split(".")[1]
    return value if key.endswith(".name") else f"{key if names[name] > 1 else name} = {value}"


def absent(key):
    return [] if key.endswith(".name") else [f"no {key.split('.')[1]}"]


def alike_in(labels):
    """The lists of places whose labels are the same, of two or more."""
    places = {}
    for i, label in enumerate(labels):
        places.setdefault(tuple(label), []).append(i)
    return [alike for alike in places.values() if len(alike) > 1]


def names_of_files(paths):
    """What tells files apart, without an ending: their names, with as many of their folders as that takes."""
    resolved = [path.resolve() for path in paths]
    for folders in range(max(len(path.parts) for path in resolved)):
        names = ["/".join((*path.parts[-1 - folders:-1], path.stem)) for path in resolved]
        if len(set(names)) == len(set(resolved)):
            break
    return names


def said(run, key, value):
    """(key, value) as a label has them: of other data and models where they lie, if that is known, of code the
    beginning of its digest."""
    if key not in FILES:
        return key, value
    place = {DIGEST: "data.dir", MODEL: "model.file"}.get(key)
    return (place, run.config[place]) if place in run.config else ("run.code" if key == CODE else key, value[:8])


def groups_of_seeds(runs, tell):
    """The runs in lists of the same configuration but for seeds and output, in order of appearance.

    Of several runs of one seed the one with most rounds is in its list, of as many the one that began last; a run
    counts once in a mean. `tell` is told of the others. A file that lacks a digest, of an earlier version, is beside
    those that have it, unless they have several.
    """
    configs = [settings(run, SEEDS) for run in runs]
    with_data = [config for config in configs if DIGEST in config]
    for config, digest in zip(with_data, comparable("data_digest", [config[DIGEST] for config in with_data])):
        config[DIGEST] = digest
    own = [([config.pop(key, None) for key in FILES], frozenset(config.items())) for config in configs]
    known = {}  # of each configuration and kind
    for digests, config in own:
        for kind, digest in enumerate(digests):
            known.setdefault((config, kind), set()).add(digest)
    groups = {}
    for run, (digests, config) in zip(runs, own):
        several = (digest if len(known[config, kind] - {None}) > 1 else None for kind, digest in enumerate(digests))
        group = groups.setdefault((config, *several), {})
        seeds = seed_of(run), run.config.get("data.seed")
        other = group.get(seeds)
        if other is not None:
            out, run = sorted((other, run), key=lambda one: (len(one.rounds), str(one.attributes.get("started", ""))))
            tell(f"{out.path}: seed {seeds[0]} as {run.path}")
        group[seeds] = run
    return [list(group.values()) for group in groups.values()]


def seed_of(run):
    return run.config.get("run.seed", str(run.attributes.get("seed", "?")))


def names_of_seeds(groups):
    """What the seeds of each group's runs are called: run.seed, or RUN.SEED/DATA.SEED where runs of a group have it
    alike."""
    both = any(len({seed_of(run) for run in group}) < len(group) for group in groups)
    return [[f"{seed_of(run)}/{run.config.get('data.seed')}" if both else seed_of(run) for run in group]
            for group in groups]


def title_of(runs):
    """What all runs share: algorithm, data set, number of clients."""
    words = []
    for key, form in (("algorithm.name", "{}"), ("data.name", "on {}"), ("data.clients", "with {} clients")):
        values = {run.config.get(key) for run in runs}
        if len(values) == 1 and None not in values:
            words.append(form.format(*values))
    return " ".join(words).removeprefix("on ").removeprefix("with ")


def listed(text):
    """The items of a comma-separated list; none of an empty text."""
    return [item.strip() for item in text.split(",")] if text else []
