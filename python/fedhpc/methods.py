"""Methods in Python."""

_registered = {}


def register(name, sentence, method):
    """Adds a method, or another version of one that Python has added before."""
    _registered[name] = (name, sentence, method)


def registered():
    """[(name, sentence, class)] of all methods that Python has added; ranks of their own get them."""
    return [*_registered.values()]
