"""Train a DFlash drafter on what its target itself writes: `python -m models.train --help`."""
