"""L6: every practice of the ledger is taken out of a render, and the generated tests must notice."""
