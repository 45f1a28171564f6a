"""What a reader sees: one page for a run, one Markdown page for a reproduced experiment. Tables and figures come from
the run folder alone: no search, no JAX."""

from .build import build_report as build_report
from .committed import write_run_report as write_run_report
from .experiment import write_experiment_report as write_experiment_report
from .run_folder import RunFolder as RunFolder
from .run_folder import read_run as read_run
