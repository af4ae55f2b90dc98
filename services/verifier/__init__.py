"""The verifier: the target model over the rows of a tree, and the walk that accepts a path."""
