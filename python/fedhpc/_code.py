"""A checksum of the code of a method: runs of two versions of a class are not one experiment."""

import dis
import enum
import functools
import hashlib
import importlib.util
import inspect
import re
import sys
import sysconfig
import types
from numbers import Number
from pathlib import Path

import numpy as np

STANDARD = Path(sysconfig.get_path("stdlib")).resolve()
INSTALLED = {"site-packages", "dist-packages"}  # folders of libraries
NOT_CODE = {"__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__firstlineno__",
            "__static_attributes__", "__annotate_func__", "__annotations_cache__", "__slots__", "__hash__", "__match_args__",
            "__dataclass_fields__", "__dataclass_params__", "_abc_impl", "__abstractmethods__"}
READ, STORED = {"LOAD_GLOBAL", "LOAD_NAME"}, {"STORE_GLOBAL"}
BEHIND = {"LOAD_ATTR", "LOAD_METHOD"}

_first_texts = {}  # id -> (value, text) of values that change in place: as they were when they were first seen


def digest(method):
    """The checksums of a class, 16 hexadecimal digits each: of its verbs and all that they call, then of constants.

    In the first: the bytecode of all classes and functions but those of installed libraries, and what a class says of
    itself. In the second: the values of globals and closures, such as numbers, texts, lists, arrays and objects of own
    classes; what changes in place counts as it was first seen. Names of files, lines, comments and docstrings are in
    neither. Another version of Python gives others.
    """
    walk = _Walk(_package(method.__module__))
    walk.add(method.__name__, method)
    return "".join(hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:16]
                   for lines in (walk.code, walk.constants))


class _Walk:
    """Goes from a class to all that it is made of, each once; `package`: the class's, which may be installed."""

    def __init__(self, package):
        self.code, self.constants, self.package, self.seen = [], [], package, set()

    def own(self, module):
        """Whether what stands in the module of this name is no library's."""
        package = _package(module)
        if package == self.package:
            return True
        if package == "fedhpc" or package in sys.builtin_module_names:
            return False
        file = getattr(sys.modules.get(package), "__file__", None)
        return not _of_library(file) if file else True

    def add(self, name, value):
        """Adds what belongs to a class or a function, or what they find by a name."""
        if isinstance(value, (staticmethod, classmethod, types.MethodType)):
            value = value.__func__
        if inspect.isfunction(value) or inspect.isclass(value):
            self.add_once(name, value)
            return
        parts = _parts(value)
        if parts is None:
            self.add_constant(name, value)
            return
        self.code.append(f"{name}: {type(value).__name__}")
        for part in parts:
            self.add("part", part)

    def add_once(self, name, value):
        if id(value) in self.seen or not self.own(value.__module__):
            self.code.append(f"{name}: {value.__qualname__}")
            return
        self.seen.add(id(value))
        self.code.append(f"{name}: {type(value).__name__}")
        (self.add_class if inspect.isclass(value) else self.add_function)(value)

    def add_class(self, cls):
        for base in cls.__mro__:
            if not self.own(base.__module__):
                self.code.append(f"base {base.__qualname__}")
                continue
            for name, value in sorted(vars(base).items()):
                if name not in NOT_CODE and not isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType)):
                    self.add(name, value)

    def add_function(self, function):
        for one in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()):
            self.add("default", one)
        self.add_code(function.__code__, function.__globals__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                self.add(name, cell.cell_contents)
            except ValueError:  # it is not filled yet
                pass
        if hasattr(function, "__wrapped__"):
            self.add("wrapped", function.__wrapped__)

    def add_code(self, code, scope):
        self.code += [code.co_code.hex(), repr(code.co_names), getattr(code, "co_exceptiontable", b"").hex(),
                      f"{code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount} {code.co_flags}"]
        for place, value in enumerate(code.co_consts):
            if inspect.iscode(value):
                self.add_code(value, scope)
            elif not (place == 0 and isinstance(value, str) and "__doc__" not in code.co_names):  # a docstring
                self.code.append(_text(value) or repr(value))
        steps = list(dis.get_instructions(code))
        stored = {step.argval for step in steps if step.opname in STORED}
        for name, behind in _names(steps):
            if name in scope and name not in stored:
                self.add_found(name, scope[name], behind)
        for module in {step.argval: None for step in steps if step.opname == "IMPORT_NAME"}:
            found = _imported(module)
            for name in code.co_names if found else ():
                if name in vars(found) and not inspect.ismodule(vars(found)[name]):
                    self.add(name, vars(found)[name])

    def add_found(self, name, value, behind):
        """Adds a global; of a module what stands behind its name."""
        while inspect.ismodule(value):
            if not behind or not self.own(value.__name__):
                return
            name, *behind = behind
            value = vars(value).get(name)
        self.add(name, value)

    def add_constant(self, name, value):
        """Adds a plain value, or an object of an own class by its class and attributes."""
        text, kind = _text(value), type(value)
        if text is not None:
            text = _first(value, text)
        elif kind.__module__ != "builtins" and self.own(kind.__module__):
            self.add_once(name, kind)
            text = _first(value, _text(getattr(value, "__dict__", {})))
        self.constants.append(f"{name}: {text}")


def _package(module):
    return (module or "").partition(".")[0]


def _names(steps):
    """(name, names behind it) of the globals that code reads: h.f.g gives h, [f, g]."""
    found = []
    for step in steps:
        if step.opname in READ:
            found.append((step.argval, []))
        elif step.opname in BEHIND and found:
            found[-1][1].append(step.argval)
    return found


def _of_library(file):
    folder = Path(file).resolve()
    return bool(INSTALLED & set(folder.parts)) or folder.is_relative_to(STANDARD)


def _imported(module):
    """The module that a function imports, if it is no library's."""
    try:
        if module not in sys.modules:
            origin = importlib.util.find_spec(_package(module)).origin
            if _package(module) == "fedhpc" or origin is None or not origin.endswith(".py") or _of_library(origin):
                return None
        found = importlib.import_module(module)
    except Exception:  # the method meets it itself
        return None
    file = getattr(sys.modules[_package(module)], "__file__", None)
    return None if file is None or _package(module) == "fedhpc" or _of_library(file) else found


def _parts(value):
    """What a value that holds code is made of; None of any other."""
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    if isinstance(value, functools.cached_property):
        return [value.func]
    if isinstance(value, np.vectorize):
        return [value.pyfunc]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if hasattr(value, "__wrapped__"):  # functools.cache
        return [value.__wrapped__]
    return _members(value) if _holds_code(value) else None


def _members(value):
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, (tuple, list)) else ()


def _holds_code(value):
    return any(callable(one) or _holds_code(one) for one in _members(value))


def _first(value, text):
    """The text of a value as it was when it was first seen, where it may change in place."""
    if value is None or isinstance(value, (Number, str, bytes, tuple, frozenset, enum.Enum)):
        return text
    return _first_texts.setdefault(id(value), (value, text))[1]


def _text(value):
    """A value as text, the same in every process; None of what is no plain value."""
    if isinstance(value, enum.Enum):
        return str(value)
    if value is None or isinstance(value, (Number, str, bytes, np.generic)):
        return repr(value)
    if hasattr(value, "__array__") and not isinstance(value, type):
        try:
            value = np.asarray(value)
        except Exception:  # rows that are over, tensors with a gradient
            return None
        return None if value.dtype.hasobject else (
            f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}")
    if isinstance(value, dict):
        return _joined([f"{_text(key)}={_text(one)}" for key, one in value.items()])
    if isinstance(value, (set, frozenset)):
        return _joined(sorted(str(_text(one)) for one in value))
    if isinstance(value, (tuple, list)):
        return _joined([str(_text(one)) for one in value])
    return None


def _joined(texts):
    return re.sub(r" at 0x[0-9a-f]+", "", f"({', '.join(texts)})")
