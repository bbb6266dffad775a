"""The rules by which Spiderpool's admission webhooks refuse objects, in its words, each a function with its source.

Sources are files of Spiderpool v1.0.0. Its CRDs are the classes of `kinds.py` and its neighbours.
"""
