//! Compiles the wire messages with protox, so that no `protoc` is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = "proto/ironwright.proto";
    println!("cargo::rerun-if-changed={source}");
    let set = protox::compile([source], ["proto"])?;
    tonic_prost_build::configure().compile_fds(set)?;
    Ok(())
}
