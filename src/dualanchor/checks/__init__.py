"""The contracts of methods and oracles as functions that any package can call on its own classes."""

from dualanchor.checks.method import check_method as check_method
from dualanchor.checks.oracle import check_oracle as check_oracle
