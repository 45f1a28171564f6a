"""Launch commands, scripts and manifests read as overrides of a design (`codesign evaluate --from`)."""

from .reading import Launch as Launch
from .reading import read_launch as read_launch
from .reading import with_launch as with_launch

__all__ = ["Launch", "read_launch", "with_launch"]
