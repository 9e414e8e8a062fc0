"""Called in every `import torch` (2.5 and newer). It costs a look into the environment unless MUSTER_TORCH is set,
and imports nothing of `muster` until then."""

import os


def autoload() -> None:
    """Puts muster in gloo's place where MUSTER_TORCH=gloo."""
    wish = os.environ.get("MUSTER_TORCH", "")
    if not wish:
        return
    if wish != "gloo":
        raise ValueError(f"MUSTER_TORCH is {wish!r}; it may be 'gloo', or not set")
    import muster.torch

    muster.torch.replace_gloo()
