"""The checker of types at run time: beartype, which takes an int where a float is asked for (PEP 484).

pytest --jaxtyping-packages=codesign,_lib,checked_types.check
"""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
