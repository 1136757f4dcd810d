//! The checks against a TPM in software: what an honest one sends is accepted, each lie has its name.

mod begin;
mod endorsement;
mod quote;
