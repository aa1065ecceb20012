"""Everything that a deployment needs, in one signed folder, for hosts and control machines without a network."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
