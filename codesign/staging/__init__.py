"""The traced model: its equations, what reaches each of them, and those of the plan alone as tables."""

from ..jaxprs.program import Equation as Equation
from ..jaxprs.program import Program as Program
from ..jaxprs.program import cached as cached
from ..jaxprs.program import chained as chained
from ..jaxprs.program import flatten as flatten
from ..jaxprs.program import written_out as written_out
from .again import apart as apart
from .again import program_key as program_key
from .blocks import Blocks as Blocks
from .derivatives import slopes_along as slopes_along
from .derivatives import slopes_of as slopes_of
from .equal_plans import classes_of_plans as classes_of_plans
from .equal_plans import distinct_plans as distinct_plans
from .model import Answers as Answers
from .model import Base as Base
from .model import Model as Model
from .model import base_of as base_of
from .model import keep_base_without as keep_base_without
from .model import model_of as model_of
from .model import reserve_rows as reserve_rows
from .model import reserve_shares as reserve_shares
from .model import tight_tiers as tight_tiers
from .points import Points as Points
from .points import RowValues as RowValues
from .ranges import PlanRanges as PlanRanges
from .rows import RowProgram as RowProgram
from .rows import Rows as Rows
from .rows import row_program as row_program
from .running import Running as Running
from .running import at_many as at_many
from .running import at_points as at_points
from .running import running as running
from .staged import fields_without_rules as fields_without_rules
from .staged import stage as staged
from .tables import PlanTable as PlanTable
from .tables import PlanTables as PlanTables
from .tables import Table as Table
from .tables import fingerprint as fingerprint
from .tables import literal as literal
from .tables import tabulate as tabulate
from .tables import tabulate_all as tabulate_all

__all__ = [
    "Answers", "Base", "Blocks", "Equation", "Model", "PlanRanges", "PlanTable", "PlanTables", "Points", "Program",
    "RowProgram", "RowValues", "Rows", "Running", "Table", "apart", "at_many", "at_points", "base_of", "cached",
    "chained", "classes_of_plans", "distinct_plans", "fields_without_rules", "fingerprint", "flatten",
    "keep_base_without", "literal", "model_of", "program_key", "reserve_rows", "reserve_shares", "row_program",
    "running", "slopes_along", "slopes_of", "staged", "tabulate", "tabulate_all", "tight_tiers", "written_out",
]  # fmt: skip
