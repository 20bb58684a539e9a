//! A simulated inference engine that behaves as vLLM does, for everyone without a GPU.
