"""What is shown: figures of results, and the report of a study."""

from dualanchor.report.load import load_study
from dualanchor.report.write import write_report

__all__ = ["load_study", "write_report"]
