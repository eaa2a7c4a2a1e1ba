"""Names for runs that are shown side by side, and groups of runs that differ in their seeds only."""

SEEDS = {"run.seed", "data.seed"}
# Where results go, how they are watched and which machine works: they do not change what comes out.
NOT_IN_LEGEND = {"run.output", "run.progress", "run.log_level", "run.mpi", "run.save", "run.live",
                 "run.checkpoint_every", "data.dir", "run.collective_timeout", "run.plugin", "train.block"}
LABEL_KEYS = 4  # most settings named in one legend entry
MEANS_NOTHING = {"algorithm.k": ("algorithm.codec", "kmeans")}  # key -> unless another has this value


def settings(run, ignored=frozenset()):
    """The configuration of a run without keys that say nothing about its numbers, and without `ignored` ones."""
    return {key: value for key, value in run.config.items()
            if key not in NOT_IN_LEGEND and key not in ignored and means_something(run, key)}


def means_something(run, key):
    other, value = MEANS_NOTHING.get(key, (key, run.config[key]))
    return run.config.get(other) == value


def differing_keys(configs):
    """The keys that have more than one value among the configurations that have them; names first."""
    keys = dict.fromkeys(key for config in configs for key in config)
    differing = [key for key in keys if len({config[key] for config in configs if key in config}) > 1]
    return sorted(differing, key=lambda key: (key != "algorithm.name", key != "data.name"))


def labels_of(runs, ignored=frozenset(), most=LABEL_KEYS):
    """One entry per run: the settings in which the configurations differ, else the file's name."""
    stems = [run.path.stem for run in runs]
    own = [settings(run, ignored) for run in runs]
    differing = differing_keys(own)
    if not differing:
        return stems
    labels = []
    for config in own:
        values = [(key, config[key]) for key in differing if key in config][:most]
        labels.append(", ".join(value if key.endswith(".name") else f"{key.split('.')[1]} = {value}"
                                for key, value in values))
    if len(set(labels)) < len(runs):
        labels = [f"{label} ({stem})" for label, stem in zip(labels, stems)]
    return labels


def groups_of_seeds(runs):
    """The runs in lists of the same configuration but for seeds and output, in order of appearance."""
    groups = {}
    for run in runs:
        groups.setdefault(frozenset(settings(run, SEEDS).items()), []).append(run)
    return list(groups.values())


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
