"""A second thread that takes panels of a matrix product."""
