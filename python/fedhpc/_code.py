"""A checksum of the code of a method: runs of two versions of a class are not one experiment."""

import dis
import functools
import hashlib
import inspect
import sys
import sysconfig
import types
from numbers import Number
from pathlib import Path

import numpy as np

STANDARD = Path(sysconfig.get_path("stdlib")).resolve()
INSTALLED = {"site-packages", "dist-packages"}  # folders of libraries
NOT_CODE = {"__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__firstlineno__",
            "__static_attributes__", "__annotate_func__", "__annotations_cache__"}


def digest(method):
    """The checksum of a class: 16 hexadecimal digits of the bytecode of its verbs and of what they call by name.

    In it: all classes and functions but those of installed libraries, constants of classes, and global constants
    that cannot change in place. Names of files, lines, comments and docstrings are not. Another version of Python
    gives another one.
    """
    lines = []
    _Walk(lines, _package(method.__module__)).add(method.__name__, method)
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class _Walk:
    """Goes from a class to all that it is made of, each once; `package`: the class's, which may be installed."""

    def __init__(self, lines, package):
        self.lines, self.package, self.seen = lines, package, set()

    def own(self, module):
        """Whether what stands in the module of this name is no library's."""
        package = _package(module)
        if package == self.package:
            return True
        if package == "fedhpc" or package in sys.builtin_module_names:
            return False
        file = getattr(sys.modules.get(package), "__file__", None)
        folder = Path(file).resolve() if file else Path()
        return not (INSTALLED & set(folder.parts) or folder.is_relative_to(STANDARD))

    def add(self, name, value):
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        self.lines.append(f"{name}: {type(value).__name__}")
        if isinstance(value, property):
            for part in ("fget", "fset", "fdel"):
                self.add(part, getattr(value, part))
        elif isinstance(value, functools.cached_property):
            self.add("func", value.func)
        elif isinstance(value, functools.partial):
            self.add("func", value.func)
            self.add("arguments", (value.args, value.keywords))
        elif isinstance(value, types.MethodType):
            self.add("function", value.__func__)
        elif hasattr(value, "__wrapped__") and not inspect.isfunction(value):  # functools.cache
            self.add("wrapped", value.__wrapped__)
        elif inspect.isfunction(value) or inspect.isclass(value):
            if id(value) in self.seen or not self.own(value.__module__):
                return
            self.seen.add(id(value))
            (self.add_class if inspect.isclass(value) else self.add_function)(value)
        else:
            self.lines.append(_text(value) or "")

    def add_class(self, cls):
        for base in cls.__mro__:
            if not self.own(base.__module__):
                self.lines.append(f"base {base.__qualname__}")
                continue
            for name, value in sorted(vars(base).items()):
                if name not in NOT_CODE:
                    self.add(name, value)

    def add_function(self, function):
        self.add("defaults", function.__defaults__)
        self.add("keywords", function.__kwdefaults__)
        self.add_code(function.__code__, function.__globals__, function.__doc__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                self.add_constant(name, cell.cell_contents)
            except ValueError:  # it is not filled yet
                pass
        if hasattr(function, "__wrapped__"):
            self.add("wrapped", function.__wrapped__)

    def add_code(self, code, scope, doc=None):
        self.lines += [code.co_code.hex(), repr(code.co_names), getattr(code, "co_exceptiontable", b"").hex(),
                       f"{code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount} {code.co_flags}"]
        for place, value in enumerate(code.co_consts):
            if inspect.iscode(value):
                self.add_code(value, scope)
            elif not (place == 0 and value == doc):
                self.lines.append(_text(value) or repr(value))
        modules = []
        changed = {one.argval for one in dis.get_instructions(code) if one.opname == "STORE_GLOBAL"}
        for name in code.co_names:
            if name not in scope or name in changed:
                continue
            value = scope[name]
            if inspect.ismodule(value):
                modules.append(value)
            else:
                self.add_constant(name, value)
        for module in modules:
            if not self.own(module.__name__):
                continue
            for name in code.co_names:
                self.add_constant(name, vars(module).get(name))

    def add_constant(self, name, value):
        """Adds what code finds by a name: code and what cannot change in place."""
        if callable(value) or _constant(value):
            self.add(name, value)


def _package(module):
    return (module or "").partition(".")[0]


def _constant(value):
    """Whether a global's value cannot change in place."""
    if isinstance(value, (tuple, frozenset)):
        return all(map(_constant, value))
    return value is None or isinstance(value, (Number, str, bytes))


def _text(value):
    """A value as text, the same in every process; None of what is no plain value."""
    if value is None or isinstance(value, (Number, str, bytes, np.generic)):
        return repr(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    if isinstance(value, dict):
        return _joined([f"{_text(key)}={_text(one)}" for key, one in value.items()])
    if isinstance(value, (set, frozenset)):
        return _joined(sorted(str(_text(one)) for one in value))
    if isinstance(value, (tuple, list)):
        return _joined([str(_text(one)) for one in value])
    return None


def _joined(texts):
    return f"({', '.join(texts)})"
