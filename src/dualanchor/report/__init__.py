"""What is shown: figures of results, and the report of a study."""

from dualanchor.report.folder import load_study, write_report

__all__ = ["load_study", "write_report"]
