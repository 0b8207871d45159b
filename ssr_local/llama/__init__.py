"""The only package that touches llama.cpp (through llama-cpp-python's C bindings).

Everything above it deals in token ids, sequence numbers and numpy arrays. Calls that would abort
the process on bad arguments are guarded here, before the call.
"""

import os

# Two OpenMP threads that spin while a core is busy elsewhere turn a 20 ms step into anything up to
# 3 s. Waiting passively costs nothing measurable. It must be set before the library is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# A failed assertion in llama.cpp would start a debugger to print a backtrace.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")
