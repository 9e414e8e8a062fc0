"""Builds the wheel: maturin's backend, after the `muster` binary is built and put where the wheel takes it from.

maturin puts a module or a binary into a wheel, not both. So cargo builds the binary first, and the wheel takes it as a
data file, which pip installs with the scripts.
"""

import io
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import maturin

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE / "muster.data" / "scripts"
LIBRARIES = HERE / "muster.data" / "data" / "lib" / "muster"


def _environment():
    """In a clone what is built lies below the target folder of the workspace, in a folder of its own.

    In one folder with it `libmuster_emu.rlib`, whose name has no hash, would be the one that was built last.
    """
    if (HERE.parent / "Cargo.toml").exists() and (HERE.parent / "harness").exists():
        os.environ.setdefault("CARGO_TARGET_DIR", str(HERE.parent / "target" / "python"))
    return os.environ


def _build_binary():
    environment = _environment()
    # In a source distribution this file lies beside the workspace, and the crate in a folder.
    manifest = next(path for path in (HERE / "python" / "Cargo.toml", HERE / "Cargo.toml") if path.exists())
    command = ["cargo", "build", "--release", "--locked", "--features", "tool", "--bin", "muster"]
    subprocess.run([*command, "--manifest-path", str(manifest)], check=True)
    target = Path(environment.get("CARGO_TARGET_DIR", manifest.parent / "target"))
    _data_folders()
    shutil.copy2(target / "release" / "muster", SCRIPTS / "muster")
    # `muster emu install` and `muster tap install` find them there.
    for library in ("libmuster_emu.so", "libmuster_tap.so"):
        shutil.copy2(target / "release" / "deps" / library, LIBRARIES / library)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _build_binary()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _build_binary()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def _data_folders():
    """maturin wants the folders of data files to be there."""
    for folder in (SCRIPTS, LIBRARIES):
        folder.mkdir(parents=True, exist_ok=True)


def build_sdist(sdist_directory, config_settings=None):
    _data_folders()
    name = maturin.build_sdist(sdist_directory, config_settings)
    _name_members(Path(sdist_directory) / name)
    return name


def _name_members(archive):
    """maturin takes the crates that this one needs, and the workspace names all of them: cargo would miss the others."""
    with tarfile.open(archive) as old:
        files = [(one, old.extractfile(one).read() if one.isfile() else b"") for one in old]
    names = {one.name for one, _ in files}
    with tarfile.open(archive, "w:gz") as new:
        for one, data in files:
            root, _, inner = one.name.partition("/")
            if inner == "Cargo.toml":
                text = data.decode()
                listed = re.search(r"^members = \[(.*)\]$", text, re.M).group(1)
                there = [member for member in re.findall(r'"([^"]+)"', listed) if f"{root}/{member}/Cargo.toml" in names]
                text = text.replace(f"members = [{listed}]", "members = [" + ", ".join(f'"{one}"' for one in there) + "]", 1)
                data = text.encode()
                one.size = len(data)
            new.addfile(one, io.BytesIO(data))


get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
get_requires_for_build_editable = maturin.get_requires_for_build_editable
get_requires_for_build_sdist = maturin.get_requires_for_build_sdist


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    _data_folders()
    _environment()
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel
