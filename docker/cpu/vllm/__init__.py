"""Not vLLM: a stand-in for one name that SGLang imports from it on CPUs without AMX. See `_custom_ops`."""
