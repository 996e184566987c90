"""Around a call: binding, slow paths, checks, explain, observe, fallback, plugin loading."""
