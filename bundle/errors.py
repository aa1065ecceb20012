class BundleError(Exception):
    """One sentence that names the setting and the fix."""
