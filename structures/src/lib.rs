//! The O(1) structures of Flatpath. No I/O; model-checked.
