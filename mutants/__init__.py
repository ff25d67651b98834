"""Plants small bugs, one at a time, in a copy of the tree, and sees whether a test fails. Run: `make mutants`."""
