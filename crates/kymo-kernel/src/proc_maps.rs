//! What processes have mapped, from /proc.
