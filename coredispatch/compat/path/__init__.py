"""A folder for ``sys.path``; see :mod:`coredispatch.compat.torch.switch`."""
