"""Where pip has put the `muster` program."""

import os
import shutil
import sys
import sysconfig


def path() -> str:
    """The program of this installation, or else one on PATH."""
    folders = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    user = f"{os.name}_user"
    if user in sysconfig.get_scheme_names():
        folders.append(sysconfig.get_path("scripts", user))
    for folder in folders:
        candidate = os.path.join(folder, "muster")
        if os.access(candidate, os.X_OK):
            return candidate
    found = shutil.which("muster")
    if found is None:
        raise FileNotFoundError(f"the muster program is in none of {', '.join(folders)} and not on PATH")
    return found
