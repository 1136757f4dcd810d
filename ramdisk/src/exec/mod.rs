//! What this machine does on control's order.

pub mod source;
