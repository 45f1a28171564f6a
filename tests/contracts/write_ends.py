"""Write `refused_ends.csv` anew after a change of fields or legal ranges: `python tests/contracts/write_ends.py`."""

import csv
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from contracts.test_ends import ASKED, PLACES, TABLE, table_rows

rows = [["field", "low", "high", *ASKED], *table_rows(*PLACES)]
with TABLE.open("w", encoding="utf-8", newline="") as file:
    csv.writer(file, lineterminator="\n").writerows(rows)
