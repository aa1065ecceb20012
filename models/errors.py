"""The one exception that the command line turns into a single line and exit code 1."""


class ModelError(Exception):
    """A model pair cannot be used; the message names the file or setting and the fix."""
