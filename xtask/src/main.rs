//! The project's own commands. Plain Rust: builds on a machine that has none of the system libraries yet,
//! because it is what installs them.

mod arrows;
mod bench;
mod cargo;
mod ci;
mod demo;
mod nightly;
mod setup;
mod suite;
mod timeline;

use clap::{Parser, Subcommand};

/// Ironwright's own commands. On a fresh machine with Rust, git and apt, `demo` and `test` need nothing else.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install the Debian packages that building and testing need; without root, say which are missing.
    Setup,
    /// Take an emulated machine from a blank disk to Debian's login prompt, and show each stage.
    Demo {
        /// Leave everything running at the end until Enter is pressed, and say how to look around.
        #[arg(long)]
        keep: bool,
    },
    /// Run unit and integration tests, and the quick end-to-end tests.
    Test,
    /// Run all end-to-end tests.
    E2e {
        /// Only tests whose name contains this.
        filter: Option<String>,
    },
    /// Run what has to pass before a change goes in: formatting, clippy, arrows, licences and advisories, tests.
    Ci {
        /// Leave out the advisories, whose database is fetched from GitHub.
        #[arg(long)]
        offline: bool,
    },
    /// Check that crates use only crates of lower layers.
    Arrows,
    /// Simulate many fleets, an hour each: as many seeds as are asked for, with light and with heavy chaos.
    Nightly {
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        first: u64,
        /// How many seeds.
        #[arg(long, default_value_t = 500)]
        seeds: u64,
    },
    /// Measure, print and write to `target/bench`.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand)]
enum Bench {
    /// Sizes of the initramfs, and times from kernel to session and to a deployed disk.
    Boot,
    /// Agents with sessions at one control: memory, dispatch, durable commands, and a fleet that comes back.
    Gateway {
        /// How many agents.
        #[arg(long, default_value_t = 20_000)]
        sessions: usize,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Setup => setup::run(),
        Command::Demo { keep } => demo::run(keep),
        Command::Test => suite::test(),
        Command::E2e { filter } => suite::e2e(filter.as_deref()),
        Command::Ci { offline } => ci::run(offline),
        Command::Arrows => arrows::check(),
        Command::Nightly { first, seeds } => nightly::run(first, seeds),
        Command::Bench(Bench::Boot) => bench::boot(),
        Command::Bench(Bench::Gateway { sessions }) => bench::gateway(sessions),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}
