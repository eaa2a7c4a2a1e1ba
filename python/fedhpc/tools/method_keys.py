"""Which keys of a configuration act once the method is chosen, as the program decides it (docs/decisions/0024)."""

NAME = "algorithm.name"
SECTION = "algorithm."
OF_ALL_METHODS = {"algorithm.codec", "algorithm.k", "algorithm.codec_fraction", "algorithm.codec_levels",
                  "algorithm.codec_rank", "algorithm.weighting", "algorithm.downlink_codec",
                  "algorithm.error_feedback"}  # those of methods that have them
DEFAULT_METHOD = "fedavg"


def of_one_method(key):
    """(METHOD, "algorithm.KEY") of a key algorithm.METHOD.KEY; None for any other key."""
    parts = key.split(".", 2)
    return (parts[1], SECTION + parts[2]) if len(parts) == 3 and key.startswith(SECTION) else None


def method_of(base, overrides):
    """The method of a configuration with overrides."""
    return overrides.get(NAME, base.get(NAME, DEFAULT_METHOD))


def acting(base, overrides):
    """The settings in force, under their plain names: those of the file `base`, then the command line's."""
    method = method_of(base, overrides)
    foreign = base.get(NAME, method) != method
    settings = {key: value for key, value in base.items()
                if not (foreign and key.startswith(SECTION) and key not in OF_ALL_METHODS)}
    merged = {}
    for level in ({**_sections(base), **settings}, overrides):
        own = {named[1]: value for key, value in level.items() if (named := of_one_method(key)) and named[0] == method}
        merged.update({key: value for key, value in level.items() if not of_one_method(key)})
        merged.update(own)
    return merged


def _sections(settings):
    return {key: value for key, value in settings.items() if of_one_method(key)}
