//! What the Isotherm filter does, free of the host that it runs in.
