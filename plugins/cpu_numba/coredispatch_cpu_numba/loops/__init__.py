"""The compiled half of the pack: every module in this folder imports Numba.

Nothing outside imports it before the first kernel runs (``compilation.Entries`` does, by
name), which is what keeps registering the plugin free of Numba's import time.
"""
