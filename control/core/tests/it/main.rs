//! Control's decisions driven by simulated agents, machines and crashes.

mod acting;
mod agents;
mod booting;
mod crash;
mod deploy;
mod faults;
mod gateways;
mod machines;
mod restart;
mod sessions;
mod specs;
mod world;
