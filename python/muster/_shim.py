"""Compiles the torch backend (the folder `shim`) against this torch, once, and loads it.

The result is kept in the user's cache by the version of torch, of Python and of the sources, so that the next process
finds it. Ranks that start together wait for the one that compiles.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import List

NAME = "_muster_torch"
SOURCES = Path(__file__).resolve().parent / "shim"


class NoCompiler(RuntimeError):
    """The torch backend cannot be compiled here."""


def is_loaded() -> bool:
    return NAME in sys.modules


def load() -> ModuleType:
    """The module of the backend, compiled if it has to be."""
    if NAME in sys.modules:
        return sys.modules[NAME]
    library = build()
    loader = importlib.machinery.ExtensionFileLoader(NAME, str(library))
    spec = importlib.util.spec_from_file_location(NAME, library, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[NAME] = module
    return module


def build() -> Path:
    """The path of the compiled backend."""
    import torch

    digest = hashlib.sha256()
    # This file has the flags.
    for source in [Path(__file__), *sorted(SOURCES.glob("*.[ch]pp"))]:
        digest.update(source.read_bytes())
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    name = f"torch-{torch.__version__}-{python}-{platform.machine()}-{digest.hexdigest()[:12]}"
    folder = _cache() / name
    library = folder / f"{NAME}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    # The user's secret lies here too, and the program takes none from a folder that is open to others.
    _cache().chmod(0o700)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _compile(library)
    return library


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "muster"


def _compile(library: Path) -> None:
    import torch

    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        raise NoCompiler(
            "the torch backend of muster is compiled at its first use, and there is no C++ compiler on PATH; install g++, or "
            f"set CXX, or copy {library.parent} from a machine with the same torch, Python and processor"
        )
    print(
        f"muster: compiling the backend for torch {torch.__version__}, once; it takes about half a minute",
        file=sys.stderr,
        flush=True,
    )
    partial = library.with_name(f"{library.name}.{os.getpid()}")
    command = [*compiler.split(), *_flags(), "-o", str(partial), str(SOURCES / "backend.cpp"), *_links()]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        raise NoCompiler(f"the torch backend of muster is compiled at its first use, and {compiler} does not start: {error}") from None
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if "error" in line][:5]
        partial.unlink(missing_ok=True)
        raise NoCompiler(
            "the torch backend of muster could not be compiled; the first errors:\n"
            + "\n".join(lines or done.stdout.splitlines()[:5])
            + "\nthe command was: "
            + " ".join(command)
        )
    os.replace(partial, library)


def _torch_folder() -> Path:
    import torch

    return Path(torch.__file__).resolve().parent


def _flags() -> List[str]:
    import torch

    include = _torch_folder() / "include"
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    standard = "c++20" if (major, minor) >= (2, 10) else "c++17"
    return [
        f"-std={standard}",
        "-O1",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        "-w",
        f"-DTORCH_EXTENSION_NAME={NAME}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        *_pybind_flags(),
        f"-I{include}",
        f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}",
        f"-I{sysconfig.get_path('include')}",
    ]


def _pybind_flags() -> List[str]:
    """The compiler that built this torch, where torch names it: an older pybind11 shares classes only between modules of the
    same compiler and ABI, so this one has to say that it is torch's."""
    import torch

    names = ("COMPILER_TYPE", "STDLIB", "BUILD_ABI")
    given = ((name, getattr(torch._C, f"_PYBIND11_{name}", None)) for name in names)
    return [f'-DPYBIND11_{name}="{value}"' for name, value in given if value]


def _links() -> List[str]:
    return [f"-L{_torch_folder() / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10"]
