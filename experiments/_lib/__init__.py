"""Code that experiments share: simulations, and models of single publications.

Importable as `_lib` once an experiment is loaded (`codesign.evidence.reproduction.load`). Other scripts first put the
folder of the experiments on `sys.path`.
"""
