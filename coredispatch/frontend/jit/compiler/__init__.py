"""The compiler of ``jit.script``: the source of a program, with its annotations, to a graph.

``source`` reads and locates, ``types`` and ``annotations`` say what a value is, ``values`` what the
compiler knows of a name. ``blocks`` writes graphs; ``statements``, ``control``, ``loops``,
``expressions``, ``operations``, ``attributes`` and ``calls`` go through the text. ``programs`` and
``modules`` make functions and modules of the result.
"""
