"""Ways to look for good designs."""

from .base import AbstractSearch as AbstractSearch
from .base import Problem as Problem
from .base import Progress as Progress
from .base import Trace as Trace
from .blackbox import Blackbox as Blackbox
from .certified import Certified as Certified
from .gradient import Descent as Descent
from .gradient import GridThenGradient as GridThenGradient
from .gradient import Optimiser as Optimiser
from .grid import Grid as Grid
from .inverse import Inverse as Inverse
from .peers import CmaEs as CmaEs
from .peers import DifferentialEvolution as DifferentialEvolution
from .peers import Nsga2 as Nsga2
from .peers import Random as Random
from .peers import Tpe as Tpe
