"""The drafter: candidate trees from the MTP head and from suffix look-ups."""
