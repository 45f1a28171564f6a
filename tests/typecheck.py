"""The run-time type checker of the tests: beartype, taking an int where a float is asked for (PEP 484)."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
