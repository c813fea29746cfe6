"""`Replacements`: names in the modules of other packages that stand for gluonloader's classes, until they are restored.

install()    names of modules that are loaded      -> our classes
             a module that is imported later       -> _Finder -> our classes
uninstall()  all of them, and modules of the same packages that have imported our classes since -> as before

Modules of the user's program that hold the old classes are not changed; `install` warns of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from ..errors import logger, warn
from ..locks import Lock
from ..messages import message


@message(frozen=True, slots=True)
class _Replaced:
    module: ModuleType
    name: str
    original: Any
    replacement: Any


class Installed:
    """The context manager that `install` returns; it calls `uninstall` at the end of the `with` block."""

    def __init__(self, replacements: Replacements | None) -> None:
        self._replacements = replacements  # None if an earlier call of `install` still has effect

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        if self._replacements is not None:
            self._replacements.uninstall()


class Replacements:
    """The classes of one drop-in, and what they replace at the moment.

    Args:
        install: how a user calls `install`, for messages.
        library: whose loader is replaced, for messages, e.g. "torch".
        theirs: the loader that is replaced.
        ours: the class that replaces it.
        names: the modules that are changed, each with the names and their new classes.
        later: the same by names of modules that need not be loaded yet, with one class each, which has the name of the
            class that it replaces. Modules of the same package that have imported that class are changed, too.
    """

    def __init__(
        self,
        install: str,
        library: str,
        theirs: type,
        ours: type,
        names: Sequence[tuple[ModuleType, Mapping[str, Any]]],
        later: Mapping[str, type] | None = None,
    ) -> None:
        self._call = install
        self._library = library
        self._theirs = theirs
        self._ours = ours
        self._names = names
        self._later = later or {}
        self._packages = {_top(module) for module, _ in names} | {name.partition(".")[0] for name in self._later}
        self._replaced: list[_Replaced] = []
        self._finder = _Finder(self)
        self._lock = Lock()  # while classes are replaced or restored

    def install(self) -> Installed:
        """Replaces the names, and warns of modules that keep the old loader. A second call does nothing."""
        with self._lock:
            return self._install()

    def _install(self) -> Installed:
        if self._replaced:
            return Installed(None)
        if too_early := sorted({*self._derived(self._theirs), *self._imported_by_name()}):
            warn(
                f"{self._library}'s DataLoader was imported or subclassed before the call of {self._call}; these "
                f"names continue to use {self._library}'s loader: {', '.join(too_early)}; call install() before "
                "the other imports"
            )
        for module, names in self._names:
            self._replace(module, names)
        for name in self._later:
            if name in sys.modules:
                self._replace_in_package(sys.modules[name])
        if self._later:
            sys.meta_path.insert(0, self._finder)
        replaced = (f"{item.module.__name__}.{item.name}" for item in self._replaced)
        logger().info("install: replaced %s", ", ".join(replaced))
        return Installed(self)

    def uninstall(self) -> None:
        """Puts the original classes back, also in modules that have imported the new ones since."""
        with self._lock:
            self._uninstall()

    def _uninstall(self) -> None:
        changed = [module for module in _modules() if _top(module) in self._packages]
        while self._replaced:
            item = self._replaced.pop()
            for module in changed:
                if vars(module).get(item.name) is item.replacement:
                    setattr(module, item.name, item.original)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)

    def is_later(self, name: str) -> bool:
        """Whether a class of the module with this name is replaced when the module is imported."""
        return name in self._later

    def imported(self, module: ModuleType) -> None:
        """Replaces the class of a module that has just been imported."""
        with self._lock:
            if self._replaced:  # otherwise `uninstall` was called meanwhile
                self._replace_in_package(module)

    def _replace(self, module: ModuleType, names: Mapping[str, Any]) -> None:
        for name, new in names.items():
            self._replaced.append(_Replaced(module, name, getattr(module, name), new))
            setattr(module, name, new)

    def _replace_in_package(self, module: ModuleType) -> None:
        """Replaces the class that `module` defines, there and in all modules of its package that have imported it."""
        new = self._later[module.__name__]
        original = vars(module).get(new.__name__)
        for found in _modules() if original is not None else ():
            if _top(found) == _top(module) and vars(found).get(new.__name__) is original:
                self._replace(found, {new.__name__: new})

    def _derived(self, base: Any) -> Iterator[str]:
        """Classes of the user that derive from the loader that is replaced, but not from ours."""
        for kind in base.__subclasses__():
            if not issubclass(kind, self._ours):
                if kind.__module__.partition(".")[0] not in self._packages:  # `import gluoncv` alone derives some
                    yield f"{kind.__module__}.{kind.__qualname__}"
                yield from self._derived(kind)

    def _imported_by_name(self) -> Iterator[str]:
        """The names under which modules of the user's program have imported the loader that is replaced."""
        known = {*self._packages, __name__.partition(".")[0]}
        for module in _modules():
            for name, value in list(vars(module).items()) if _top(module) not in known else ():
                if value is self._theirs:
                    yield f"{module.__name__}.{name}"


class _Finder:
    """Replaces a class as soon as the module that defines it is imported."""

    def __init__(self, replacements: Replacements) -> None:
        self._replacements = replacements

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if self._replacements.is_later(name) else None
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._replacements.imported(module)

        loader.exec_module = exec_module
        return spec


def _modules() -> list[ModuleType]:
    return [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]


def _top(module: ModuleType) -> str:
    return str(vars(module).get("__name__")).partition(".")[0]
