"""Studies: methods on a problem under one budget; panels as data, tuning, a store of finished pieces."""
