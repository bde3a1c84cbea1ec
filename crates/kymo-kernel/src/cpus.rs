//! CPU lists, which CPUs are online, how they are arranged.
