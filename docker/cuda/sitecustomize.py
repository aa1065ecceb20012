"""Points JIT at the CUDA toolkit of the locked wheels. Python imports this by itself when it is on PYTHONPATH.

Where the environment names another toolkit, that one is used.
"""

import os
import sysconfig

home = os.path.join(sysconfig.get_path("purelib"), "nvidia", "cu13")
if "CUDA_HOME" not in os.environ and os.path.isfile(os.path.join(home, "bin", "nvcc")):
    os.environ["CUDA_HOME"] = home
    os.environ["PATH"] = os.path.join(home, "bin") + os.pathsep + os.environ.get("PATH", "")
