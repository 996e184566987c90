"""Stands on ``sys.path`` while the shim is installed, so that spawned processes find it.

``import torch`` in a fresh process whose ``sys.path`` has the folder above runs this file, which
puts coredispatch under the name.
"""

from coredispatch.compat.torch import install

install()
