//! The promises of the agent, each checked through `Agent::step` alone.

mod commands;
mod crashes;
mod events;
mod rig;
mod session;
mod specs;
