"""A checksum of the code of a method: runs of two versions of a class are not one experiment."""

import argparse
import dataclasses
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
from collections.abc import Mapping, Sequence
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
PLAIN = (Number, str, bytes, np.generic, np.dtype, range, slice)  # said whole by their repr
OF_TORCH = {"dtype", "device"}  # the same, where a method has imported it

_begun = []  # (class, its constants) of the run that goes on
_changed = {}  # (module, name of a class) -> {checksum of a constant as a run has left it: the constant as it counts}


def digest(method):
    """The checksums of a class, 16 hexadecimal digits each: of its verbs and all that they call, then of constants.

    In the first: the bytecode of all classes and functions but those of installed libraries, and what a class says of
    itself. In the second: the values of globals and closures, such as numbers, texts, lists, arrays and objects of own
    classes; what a run has changed in place counts as it was before. Names of files, lines, comments and docstrings are
    in neither. Another version of Python gives others.
    """
    walk, changed = _walked(method), _changed.get(_name(method), {})
    constants = [changed.get(_checksum(line), line) for line in walk.constants]
    _begun[:] = [(method, constants)]
    return _checksum("\n".join(walk.code)) + _checksum("\n".join(constants))


def run_ended():
    """Remembers what the run has changed in place: logs that grow do not make the next run another experiment."""
    if _begun:
        method, before = _begun.pop()
        after = _walked(method).constants
        if len(after) == len(before):
            _changed.setdefault(_name(method), {}).update(
                {_checksum(new): old for old, new in zip(before, after) if new != old})


def _walked(method):
    walk = _Walk(_package(method.__module__))
    walk.add(method.__name__, method)
    return walk


def _name(method):
    return method.__module__, method.__qualname__


def _checksum(text):
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class _Walk:
    """Goes from a class to all that it is made of, each once; `package`: the class's, which may be installed."""

    def __init__(self, package):
        self.code, self.constants, self.package, self.seen = [], [], package, set()
        self.texts = {}  # id -> text of objects, which may hold each other

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
                self.code.append(self.text(value) or repr(value))
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
        """Adds a plain value, or an object by its attributes and, if it is of an own class, by that."""
        self.constants.append(f"{name}: {self.text(value, name)}")

    def text(self, value, name="part"):
        """A value as text, the same in every process; None of what is neither plain nor of an own class."""
        own = type(value).__module__ != "builtins" and self.own(type(value).__module__)
        if own:
            self.add_once(name, type(value))
        if isinstance(value, enum.Enum):
            return str(value)
        if isinstance(value, re.Pattern):
            return repr((value.pattern, value.flags))
        kind = type(value)
        if value is None or isinstance(value, PLAIN) or kind.__module__ == "torch" and kind.__name__ in OF_TORCH:
            return repr(value)
        of_array = _text_of_array(value)
        if of_array is not None:
            return of_array
        held = f" {self.text_of_object(value)}" if own and attributes_of(value) else ""  # of a list as well
        if isinstance(value, (dict, types.MappingProxyType)):
            return _joined([f"{self.part(key)}={self.part(one)}" for key, one in value.items()]) + held
        if isinstance(value, (set, frozenset)):
            return _joined(sorted(str(self.part(one)) for one in sorted(value, key=_name_of_kind))) + held
        if isinstance(value, (tuple, list)):
            return _joined([str(self.part(one)) for one in value]) + held
        if own or dataclasses.is_dataclass(value) or isinstance(value, (types.SimpleNamespace, argparse.Namespace)):
            return self.text_of_object(value)
        if isinstance(value, Mapping):
            return self.text(dict(value))
        return self.text(list(value)) if isinstance(value, Sequence) else None

    def text_of_object(self, value):
        if id(value) not in self.texts:
            self.texts[id(value)] = "..."  # where it holds itself
            self.texts[id(value)] = self.text(attributes_of(value))
        return self.texts[id(value)]

    def part(self, value):
        """The text of what another value holds; of code the kind, beside the code itself."""
        if inspect.isfunction(value) or isinstance(value, types.MethodType) or inspect.isclass(value) or _parts(value):
            self.add("part", value)
            return type(value).__name__
        text = self.text(value)
        # Objects that hold each other many times would make a text without end.
        return _checksum(text) if id(value) in self.texts else text


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
    if isinstance(value, (functools.partial, functools.partialmethod)):
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


def attributes_of(value):
    """{name: value}, of slots too."""
    slots = [name for base in type(value).__mro__ for name, one in vars(base).items()
             if isinstance(one, types.MemberDescriptorType)]
    return {**{name: getattr(value, name) for name in slots if hasattr(value, name)}, **getattr(value, "__dict__", {})}


def _name_of_kind(value):
    """What a set of code is ordered by, whose own order is another one in every process."""
    return f"{type(value).__qualname__} {getattr(value, '__qualname__', '')}"


def _text_of_array(value):
    if not hasattr(value, "__array__") or isinstance(value, type):
        return None
    try:
        value = np.asarray(value.detach() if hasattr(value, "detach") else value)
    except Exception:  # rows that are over
        return None
    return None if value.dtype.hasobject else (
        f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}")


def _joined(texts):
    return re.sub(r" at 0x[0-9a-f]+", "", f"({', '.join(texts)})")
