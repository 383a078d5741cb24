//! Echoes of WebSocket messages: ours, and tokio-tungstenite. Both on one thread, both without
//! compression, both send each answer at once.

pub(super) mod ours;
pub(super) mod tungstenite;
