"""The registry of model pairs (target and drafter), and the tools that fetch, verify and check them."""
