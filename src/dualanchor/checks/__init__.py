"""The contract of methods and oracles as functions that anybody's package can call on a class of its own."""

from dualanchor.checks.method import check_method as check_method
from dualanchor.checks.oracle import check_oracle as check_oracle
